"""Write a run's rows as CSV: as many lines as the input, its cells as they came."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rowmill.cli.prepare import Prepared
from rowmill.errors import InfrastructureError
from rowmill.streams.adapters.sheet.export import InputLine, export_csv
from rowmill.streams.adapters.sheet.reading import SheetReader


class RowsTaken(InfrastructureError):
    """A later run has written rows of this run again: the sheet shows those, not ours."""

    def __init__(self, out: Path, run: str, taken: int) -> None:
        super().__init__(
            f"{out} was not written: a later run wrote {taken:,} rows of run {run} again, and the "
            "sheet shows the newest. Write what it shows: rowmill sheet export --out FILE."
        )


def write_out(prepared: Prepared, out: Path, run_id: str) -> None:
    """Write `out`, whole or not at all. Raises: RowsTaken, InfrastructureError; InputError where
    the input has changed.
    """
    play = prepared.play
    with _whole(out) as stream, SheetReader(prepared.settings.sheet_url) as sheet:
        exported = export_csv(
            sheet,
            play.dataset.name,
            stream,
            run=run_id,
            headers=prepared.table.original_header,
            lines=_lines(prepared),
            outputs=play.dataset.output_columns,
            replace=play.dataset.replaced_columns,
        )
        if exported.taken:
            raise RowsTaken(out, run_id, exported.taken)


def _lines(prepared: Prepared) -> Iterator[InputLine]:
    dataset = prepared.play.dataset
    for row in prepared.rows():
        found = dataset.identify(row.values, row.index)
        # Surplus cells of a line that is longer than the header are kept: nothing is dropped.
        yield InputLine(
            None if row.refused or found.refused else found.row,
            [*row.values.values(), *row.surplus],
        )


@contextmanager
def _whole(out: Path) -> Iterator[TextIO]:
    """Open a file beside `out` and move it there at the end; a device or pipe is written as is."""
    try:
        if out.exists() and not out.is_file():
            with out.open("w", encoding="utf-8", newline="") as stream:
                yield stream
            return
        target = out.resolve()  # a link stays a link
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
        try:
            with unfinished.open("w", encoding="utf-8", newline="") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InfrastructureError(
            f"{out} can't be written: {error.strerror or error}. The rows are in the sheet; "
            "the same command with the same run id writes the file again."
        ) from error
