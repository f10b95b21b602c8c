"""Records as large as Kafka takes them: what a role makes of one is never above that itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rowmill.topics.contracts import ReceiptEntry
from tests.fuzz.bounds import bounded
from tests.fuzz.mutations import wire
from tests.fuzz.records import ASK, COMPLETED, INPUT, RESULT, ROW_DONE, plain
from tests.fuzz.strict_engine import REQUEST_BYTES_MAX, Loop
from tests.fuzz.test_dispatch_intake import take_in as take_request
from tests.fuzz.test_rows_intake import Shelf, hear
from tests.fuzz.test_rows_intake import take_in as take_row
from tests.fuzz.test_sink_intake import Bench
from tests.fuzz.test_sink_intake import take_in as take_finished

ROOM = REQUEST_BYTES_MAX - 200
"""For a value; key and headers of other clients may be short."""

FILLINGS = {"text": "x", "controls": "\x01", "characters": "é", "quotes": '"'}


def filled(value: Any, *place: str, text: str) -> bytes:
    """Return a record in which the field at `place` is as long as the record may be."""
    record = value if isinstance(value, dict) else plain(value)
    outer: Any = record
    for name in place[:-1]:
        outer = outer[name]
    outer[place[-1]] = ""
    room = ROOM - len(wire(record))
    outer[place[-1]] = text * (room // (len(wire(text)) - 2))
    assert ROOM - 10 < len(wire(record)) <= ROOM
    return wire(record)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("plays"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("text", FILLINGS.values(), ids=FILLINGS)
@pytest.mark.parametrize("field", ["row", "call", "tool", "receipt", "run", "kind", "force_token"])
def test_dispatch_takes_a_large_request_in_or_sets_it_aside(
    loop: Loop, field: str, text: str
) -> None:
    value = filled(ASK, field, text=text)
    bounded(lambda: loop.run(lambda: take_request([value], None)))


@pytest.mark.parametrize("text", FILLINGS.values(), ids=FILLINGS)
def test_dispatch_asks_a_large_question_and_keeps_a_large_answer(loop: Loop, text: str) -> None:
    question = filled(ASK, "input", "q", text=text)
    bounded(lambda: loop.run(lambda: take_request([question], None)))
    entry = {"kind": "settle", "lease": "lease", "receipt": plain_receipt()}
    answer = filled(entry, "receipt", "output", text=text)
    bounded(lambda: loop.run(lambda: take_request([answer], None)))


def plain_receipt() -> dict[str, Any]:
    """Return a completed receipt as JSON."""
    found: dict[str, Any] = plain(ReceiptEntry(epoch=1, receipt=COMPLETED))["receipt"]
    return found


@pytest.mark.parametrize("text", FILLINGS.values(), ids=FILLINGS)
@pytest.mark.parametrize("row", [None, INPUT.row])
@pytest.mark.parametrize(
    "place", [("values", "extra"), ("values", "id"), ("refused",), ("dataset",)]
)
def test_rows_runs_a_large_row_or_sets_it_aside(
    loop: Loop, shelf: Shelf, place: tuple[str, ...], row: str | None, text: str
) -> None:
    value = filled(INPUT.model_copy(update={"row": row}), *place, text=text)
    bounded(lambda: loop.run(lambda: take_row(shelf, value)))


@pytest.mark.parametrize("text", FILLINGS.values(), ids=FILLINGS)
@pytest.mark.parametrize("field", ["output", "tool", "provider", "error"])
def test_rows_hears_a_large_answer(loop: Loop, shelf: Shelf, field: str, text: str) -> None:
    record = plain(RESULT)
    if field == "error":
        record |= {"status": "failed", "error": {"kind": "permanent", "message": ""}}
    place = ("error", "message") if field == "error" else (field,)
    changed = msgspec.json.decode(filled(record, *place, text=text))
    bounded(lambda: loop.run(lambda: hear(shelf, changed)))


@pytest.mark.parametrize("text", FILLINGS.values(), ids=FILLINGS)
@pytest.mark.parametrize(
    "place", [("values", "key"), ("error",), ("row",), ("dataset",), ("kind",)]
)
def test_sink_writes_a_large_row_or_sets_it_aside(
    loop: Loop, bench: Bench, place: tuple[str, ...], text: str
) -> None:
    value = filled(ROW_DONE, *place, text=text)
    bounded(lambda: loop.run(lambda: take_finished(bench, value)))
    bench.close()
