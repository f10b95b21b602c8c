"""The export has the input's lines and characters, and the outputs after them (I3, D7)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rowmill.errors import UsageError
from rowmill.streams.adapters.sheet.export import InputLine, export_csv, export_jsonl
from rowmill.streams.adapters.sheet.reading import SheetReader
from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.streams.core.chunks import Chunk, Span
from rowmill.streams.core.identity import digest
from rowmill.streams.core.row_writes import CellWrite, RowWrite
from tests.conformance.sheet.writes import SOURCE, patch, row


class Filled:
    """A sheet with rows, and a reader of it."""

    def __init__(self, path: Path) -> None:
        self._sheet = SqliteSheet(f"sqlite:///{path}")
        self._next: int | None = None
        self.reader = SheetReader(f"sqlite:///{path}")

    def put(self, *rows: RowWrite) -> None:
        first = self._next or 0
        end = first + len(rows)
        self._sheet.flush(
            SOURCE, Chunk((Span(0, self._next, end, tuple(range(first, end)), rows),))
        )
        self._next = end

    def csv(self, **options: object) -> list[list[str]]:
        out = io.StringIO(newline="")
        export_csv(self.reader, "leads", out, **options)  # type: ignore[arg-type]
        return list(csv.reader(io.StringIO(out.getvalue(), newline="")))

    def close(self) -> None:
        self.reader.close()
        self._sheet.close()


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    made = Filled(tmp_path / "s.sqlite")
    yield made
    made.close()


@pytest.mark.behaviour("I3")
def test_duplicates_repeat_the_outputs_of_the_row_that_won(filled: Filled) -> None:
    filled.put(row("a", cells={"v": "A"}), row("b", cells={"v": "B"}, index=2))
    lines = [
        InputLine(digest("a"), ["a", "first"]),
        InputLine(digest("a"), ["a", "again"]),
        InputLine(digest("b"), ["b", ""]),
        InputLine(None, ["", "no key"]),
    ]
    assert filled.csv(headers=["key", "note"], lines=lines) == [
        ["key", "note", "v"],
        ["a", "first", "A"],
        ["a", "again", "A"],
        ["b", "", "B"],
        ["", "no key", ""],
    ]


@pytest.mark.parametrize(
    "cell", ["a\r", "\n", "\r\n", 'a"b', ",", " padded ", "\t", "'", "é", "\\", "00501", ""]
)
def test_every_cell_comes_back_with_the_same_characters(filled: Filled, cell: str) -> None:
    filled.put(row("a", cells={"v": cell}))
    lines = [InputLine(digest("a"), [cell])]
    assert filled.csv(headers=["key"], lines=lines) == [["key", "v"], [cell, cell]]


def test_lines_end_with_a_line_feed(filled: Filled) -> None:
    filled.put(row("a", cells={"v": "1\r\n2"}))
    out = io.StringIO(newline="")
    exported = export_csv(filled.reader, "leads", out)
    assert out.getvalue() == 'key,v\na,"1\r\n2"\n'
    assert exported.lines == 1


def test_without_the_input_rows_come_in_its_order(filled: Filled) -> None:
    filled.put(*(row(str(at), {"key": str(at)}, index=at) for at in (11, 2, 30)))
    assert filled.csv() == [["key"], ["2"], ["11"], ["30"]]


def test_more_rows_than_a_page_are_all_there(filled: Filled) -> None:
    filled.put(*(row(str(at), {"key": str(at)}, index=at) for at in range(2_500)))
    assert filled.csv(run="run-1") == [["key"], *([str(at)] for at in range(2_500))]
    lines = [InputLine(digest(str(at)), [str(at)]) for at in reversed(range(2_500))]
    assert filled.csv(headers=["key"], lines=lines)[1] == ["2499"]


def test_rows_of_one_index_are_not_lost_between_pages(filled: Filled) -> None:
    filled.put(*(row(str(at), index=at // 2) for at in range(10)))
    page = filled.reader.page("leads", limit=3)
    last = page[-1]
    rest = filled.reader.page("leads", after=(last.index, last.row))
    assert {found.row for found in (*page, *rest)} == {digest(str(at)) for at in range(10)}
    assert len(page) + len(rest) == 10


@pytest.mark.behaviour("D7")
def test_an_output_named_like_an_input_is_added_or_replaces(filled: Filled) -> None:
    filled.put(row("a", {"domain": "in"}, {"domain": "out", "v": "1"}))
    assert filled.csv() == [["domain", "domain_2", "v"], ["in", "out", "1"]]
    assert filled.csv(replace=["domain"]) == [["domain", "v"], ["out", "1"]]


def test_json_stands_in_one_cell(filled: Filled) -> None:
    value = CellWrite("completed", msgspec.Raw(b'{"a":1.10,"b":["x"]}'))
    filled.put(row("a", cells={"v": value}))
    assert filled.csv()[1] == ["a", '{"a":1.10,"b":["x"]}']


def test_rows_of_another_run_and_open_rows_are_unfinished(filled: Filled) -> None:
    filled.put(
        row("a", cells={"v": "1"}),
        row("b", cells={"v": "2"}, run="run-2", run_number=2),
        patch("c", {"v": "3"}),
    )
    out = io.StringIO(newline="")
    lines = [InputLine(digest(key), [key]) for key in "abcd"]
    exported = export_csv(filled.reader, "leads", out, run="run-1", headers=["key"], lines=lines)
    assert out.getvalue() == "key,v\na,1\nb,\nc,3\nd,\n"
    assert (exported.lines, exported.unfinished, exported.taken) == (4, 3, 1)


def test_formulas_are_kept_and_counted_or_made_harmless(filled: Filled) -> None:
    cells = {"f": "=1+1", "n": "-5", "p": "+1555", "x": "-1+1", "t": "\tx", "@": "@A1"}
    filled.put(row("a", cells=cells))
    out = io.StringIO(newline="")
    assert export_csv(filled.reader, "leads", out).formulas == 5  # the header "@" too
    assert filled.csv()[1] == ["a", *cells.values()]
    safe = filled.csv(spreadsheet_safe=True)
    assert safe[1] == ["a", "'=1+1", "-5", "+1555", "'-1+1", "'\tx", "'@A1"]


def test_headers_without_lines_are_refused(filled: Filled) -> None:
    with pytest.raises(UsageError, match="together"):
        filled.csv(headers=["key"])


def test_json_lines_keep_types_and_digits(filled: Filled) -> None:
    value = CellWrite("completed", msgspec.Raw(b'{"a":1.10}'))
    filled.put(row("a", {"key": "1", "n": 7}, {"v": value, "s": "7"}, index=3))
    out = io.StringIO()
    assert export_jsonl(filled.reader, "leads", out).lines == 1
    assert '"v":{"a":1.10}' in out.getvalue()
    found = json.loads(out.getvalue())
    assert found["input"] == {"key": "1", "n": 7}
    assert found["output"]["s"] == "7"
    assert (found["index"], found["status"], found["run"]) == (3, "completed", "run-1")


def test_a_lookup_finds_what_there_is(filled: Filled) -> None:
    filled.put(*(row(str(at), index=at) for at in range(1_200)))
    ids = [digest(str(at)) for at in range(0, 2_400, 2)]
    found = filled.reader.lookup("leads", ids)
    assert set(found) == {digest(str(at)) for at in range(0, 1_200, 2)}
    assert filled.reader.lookup("leads", []) == {}
