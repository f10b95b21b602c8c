"""From the sheet to a file: CSV with the input's own headers first, or a JSON object a line.

CSV: one line a row, outputs after the inputs, a JSON object as its compact JSON text in one cell,
no value as an empty cell. Lines end with a line feed; a cell that holds any line break is quoted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TextIO, TypeVar

import msgspec

from rowmill.errors import UsageError
from rowmill.streams.adapters.sheet.cells import CellMeta
from rowmill.streams.adapters.sheet.reading import KEYS_MAX, SheetReader, SheetRow
from rowmill.streams.core.names import sheet_columns
from rowmill.streams.core.row_writes import OPEN

T = TypeVar("T")

_FORMULA = re.compile(r"[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*")
"""A sign before nothing but a number runs nothing."""


@dataclass(frozen=True, slots=True)
class InputLine:
    """One line of the input as it was read: its row id (None: it never became a row), its cells in
    the order of the headers, character for character.
    """

    row: str | None
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class Exported:
    """`lines` written, without the header; `unfinished`: those whose row the sheet has not, or has
    without an ending; `formulas`: cells that a spreadsheet would run; `taken`: those of the
    unfinished whose row another run has written since.
    """

    lines: int
    unfinished: int
    formulas: int
    taken: int = 0


def export_csv(
    sheet: SheetReader,
    dataset: str,
    out: TextIO,
    *,
    run: str | None = None,
    headers: Sequence[str] | None = None,
    lines: Iterable[InputLine] | None = None,
    outputs: Sequence[str] | None = None,
    replace: Collection[str] = (),
    spreadsheet_safe: bool = False,
) -> Exported:
    """Write a dataset as CSV.

    With `headers` and `lines` (the input read again, in order) the file has exactly the input's
    lines and cells, and a duplicate repeats the outputs of the row that won (I3). Without them the
    rows that the sheet holds are written in input order, so duplicates have no line.

    Args: `run`: only its rows count; None: whatever run wrote a row last. `outputs`: columns in the
    order of the play, default all that the sheet knows; `replace`: those written in place of the
    input column of the same name (D7). `spreadsheet_safe`: put an apostrophe before a cell that a
    spreadsheet would run (OWASP, CSV Injection). `out`: opened with newline="".

    Raises: DatasetMissing; UsageError where only one of `headers` and `lines` is given.
    """
    if (headers is None) != (lines is None):
        raise UsageError("export_csv: give headers and lines together, or neither.")
    known = sheet.columns(dataset)
    inputs = tuple(known.inputs) if headers is None else tuple(headers)
    names = sheet_columns(
        inputs, tuple(known.outputs) if outputs is None else outputs, replace=replace
    )
    in_place = {
        place: name
        for name, header in names.exports.items()
        for place, field in enumerate(names.inputs)
        if name in replace and field == header
    }
    added = [name for name in names.outputs if name not in in_place.values()]
    file = _CsvFile(out, spreadsheet_safe=spreadsheet_safe)
    file.line((*inputs, *(names.exports[name] for name in added)))
    unfinished = taken = 0
    for cells, row in _paired(sheet, dataset, run, inputs, lines):
        if row is not None and run is not None and row.run != run:
            row, taken = None, taken + 1
        if row is None or row.status == OPEN:
            unfinished += 1
        found: Mapping[str, str | None] = row.outputs if row is not None else {}
        before = [
            cell if place not in in_place else found.get(in_place[place]) or ""
            for place, cell in enumerate(cells)
        ]
        file.line((*before, *(found.get(name) or "" for name in added)))
    return Exported(file.lines - 1, unfinished, file.formulas, taken)


def export_jsonl(
    sheet: SheetReader, dataset: str, out: TextIO, *, run: str | None = None
) -> Exported:
    """Write the rows that the sheet holds, in input order, as a JSON object a line.

    Each has index, row, run, status, error, failed_column, `input` and `output`; a value that was
    no string is JSON again, digit for digit.
    """
    lines = unfinished = 0
    for row in sheet.rows(dataset, run):
        plain = {
            "index": row.index,
            "row": row.row,
            "run": row.run,
            "status": row.status,
            "error": row.error,
            "failed_column": row.failed_column,
            "input": _json_values(row.values, row.input_cells),
            "output": _json_values(row.outputs, row.output_cells),
        }
        out.write(msgspec.json.encode(plain).decode() + "\n")
        lines += 1
        unfinished += row.status == OPEN
    return Exported(lines, unfinished, 0)


class _CsvFile:
    """A CSV writer whose lines end with a line feed.

    Python's quotes a lone carriage return only where its own line end has one (CPython's _csv.c),
    so it is told CR LF, and the CR is taken off here: it calls `write` once a line.
    """

    def __init__(self, out: TextIO, *, spreadsheet_safe: bool) -> None:
        self._out = out
        self._safe = spreadsheet_safe
        self._csv = csv.writer(self, lineterminator="\r\n")
        self.lines = 0
        self.formulas = 0

    def write(self, line: str) -> int:
        return self._out.write(line[:-2] + "\n")

    def line(self, cells: Iterable[str]) -> None:
        self._csv.writerow([self._cell(cell) for cell in cells])
        self.lines += 1

    def _cell(self, cell: str) -> str:
        if not _FORMULA.match(cell) or _NUMBER.fullmatch(cell):
            return cell
        self.formulas += 1
        return "'" + cell if self._safe else cell


def _paired(
    sheet: SheetReader,
    dataset: str,
    run: str | None,
    inputs: Sequence[str],
    lines: Iterable[InputLine] | None,
) -> Iterator[tuple[Sequence[str], SheetRow | None]]:
    """Yield each line's input cells and its row, None where the sheet has none."""
    if lines is None:
        for row in sheet.rows(dataset, run):
            yield [row.values.get(name) or "" for name in inputs], row
        return
    for page in _pages(lines, KEYS_MAX):
        found = sheet.lookup(dataset, [line.row for line in page if line.row is not None])
        for line in page:
            yield line.cells, found.get(line.row) if line.row is not None else None


def _pages(lines: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(lines)
    while page := list(islice(rest, size)):
        yield page


def _json_values(
    values: Mapping[str, str | None], cells: Mapping[str, CellMeta]
) -> dict[str, str | None | msgspec.Raw]:
    return {
        name: msgspec.Raw(text) if text is not None and name in cells and cells[name].json else text
        for name, text in values.items()
    }
