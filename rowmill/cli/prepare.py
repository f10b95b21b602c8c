"""Everything that can be wrong with a run is found here, before anything is started or called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rowmill.client.source import Source
from rowmill.client.work import PlainRow, Work, checked_run_id, identified
from rowmill.errors import UsageError
from rowmill.plays.loading import LoadedPlay, load
from rowmill.settings import Settings
from rowmill.streams.adapters.csv import CsvInput, CsvRow, read_csv
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.adapters.sheet.url import normal_url, sheet_file
from rowmill.streams.ports import SheetUnusable
from rowmill.topics.contracts import RunOptions


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for, as given."""

    play: str
    input: Path
    params: dict[str, str]
    sheet: str | None = None
    out: Path | None = None
    run_id: str | None = None
    concurrency: int | None = None
    limit: int | None = None
    max_calls: int | None = None
    budget: float | None = None
    on_row_error: str = "continue"
    encoding: str | None = None
    force: bool = False
    retry_failed: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """An order that can be carried out."""

    order: Order
    settings: Settings
    play: LoadedPlay
    table: CsvInput
    source: Source
    work: Work
    warnings: tuple[str, ...]

    @property
    def play_folder(self) -> Path:
        """The folder that rows workers must be allowed to load plays from."""
        path = self.play.reference.path
        assert path is not None
        return Path(path).resolve().parent

    def rows(self) -> Iterator[CsvRow]:
        """Yield the rows of the run, in order, from the file that was checked."""
        return islice(self.table.rows(), self.order.limit)


def prepare(order: Order, settings: Settings, *, secrets: bool = True) -> Prepared:
    """Check the order; `secrets`: also that those of the play are set.

    Raises: UsageError, InputError, PlayError, SecretMissing.
    """
    if order.force and order.retry_failed:
        raise UsageError(
            "--force asks everything again, --retry-failed what failed: give one of them. Nothing "
            "was called."
        )
    if order.run_id is not None:
        checked_run_id(order.run_id)
    if order.out is not None:
        _check_out(order.out, order.input)
    settings = _absolute(settings, order.sheet)
    table = read_csv(order.input, order.encoding)
    play = load(order.play, order.params, table.header, source=str(order.input))
    for name in play.secrets if secrets else ():
        EnvironmentSecrets().get(name)

    def rows() -> Iterator[PlainRow]:
        return (PlainRow(row.values, row.refused) for row in islice(table.rows(), order.limit))

    source = Source.read(lambda: identified(play.dataset, rows()))
    return Prepared(
        order=order,
        settings=settings,
        play=play,
        table=table,
        source=source,
        work=Work.of(play, table.header, _options(order, settings)),
        warnings=tuple(table.warnings),
    )


def _absolute(settings: Settings, sheet: str | None) -> Settings:
    """Return settings that mean the same in any folder: workers run in another."""
    try:
        url = normal_url(sheet or settings.sheet_url)
    except SheetUnusable as error:
        raise UsageError(f"{error} Nothing was called.") from error
    return settings.model_copy(update={"home": settings.home.expanduser().absolute(), "sheet": url})


def _options(order: Order, settings: Settings) -> RunOptions:
    wanted = order.concurrency if order.concurrency is not None else min(50, settings.row_max)
    return RunOptions(
        concurrency=max(1, min(wanted, settings.row_max)),
        on_row_error="fail" if order.on_row_error == "fail" else "continue",
        limit=order.limit,
        max_calls=order.max_calls,
        budget=order.budget,
        input=str(order.input),
        sheet=f"sqlite:///{sheet_file(settings.sheet_url)}",
        force="all" if order.force else "failed" if order.retry_failed else None,
    )


def _check_out(out: Path, input_: Path) -> None:
    if out.exists() and input_.exists() and out.samefile(input_):
        raise UsageError(f"--out {out} is the input itself; name another. Nothing was called.")
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; name a file in it. Nothing was called.")
    if not out.parent.is_dir():
        raise UsageError(f"--out {out}: no folder {out.parent}; make it. Nothing was called.")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise UsageError(f"--out {out} can't be written: no permission. Nothing was called.")
