"""Exactly once in effect: the sheet's own `next` decides what is written (architecture, 7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowmill.streams.core.chunks import Chunk, Span
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.ports import RowsRefused, Sheet, SheetBehind, Source
from tests.conformance.sheet.conftest import Driver
from tests.conformance.sheet.writes import SOURCE, row


def span(start: int | None, *keys: str, partition: int = 0, first: int = 0) -> Span[RowWrite]:
    offsets = tuple(range(first, first + len(keys)))
    rows = tuple(row(key, {"key": key}, index=at) for key, at in zip(keys, offsets, strict=True))
    return Span(partition, start, first + len(keys), offsets, rows)


def keys(driver: Driver) -> list[str | None]:
    with driver.reader() as reader:
        return [found.values["key"] for found in reader.rows("leads")]


def test_a_sheet_that_never_saw_a_partition_has_no_next(sheet: Sheet) -> None:
    assert sheet.next_offsets(SOURCE) == {}


def test_rows_and_next_are_written_together(sheet: Sheet, driver: Driver) -> None:
    flushed = sheet.flush(SOURCE, Chunk((span(None, "a", "b"), span(None, "c", partition=3))))
    assert flushed.next_offsets == {0: 2, 3: 1}
    assert flushed.written == 3
    assert sheet.next_offsets(SOURCE) == {0: 2, 3: 1}
    with driver.reader() as reader:
        assert reader.next_offsets(SOURCE) == {0: 2, 3: 1}


def test_a_chunk_that_comes_twice_changes_nothing(sheet: Sheet, driver: Driver) -> None:
    chunk = Chunk((span(None, "a", "b"),))
    sheet.flush(SOURCE, chunk)
    again = sheet.flush(SOURCE, chunk)
    assert (again.written, again.had) == (0, 2)
    assert again.next_offsets == {0: 2}
    assert keys(driver) == ["a", "b"]


def test_records_below_next_are_dropped_and_the_rest_is_written(
    sheet: Sheet, driver: Driver
) -> None:
    sheet.flush(SOURCE, Chunk((span(None, "a", "b"),)))
    overlap = replace(span(1, "B", "c", first=1), start=1)
    flushed = sheet.flush(SOURCE, Chunk((overlap,)))
    assert (flushed.written, flushed.had) == (1, 1)
    assert keys(driver) == ["a", "b", "c"]


def test_a_new_partition_that_is_not_new_is_read_again(sheet: Sheet, driver: Driver) -> None:
    sheet.flush(SOURCE, Chunk((span(None, "a"),)))
    flushed = sheet.flush(SOURCE, Chunk((span(None, "a", "b"),)))
    assert (flushed.written, flushed.had) == (1, 1)
    assert keys(driver) == ["a", "b"]


def test_one_partition_that_is_ahead_does_not_hold_the_others(sheet: Sheet, driver: Driver) -> None:
    sheet.flush(SOURCE, Chunk((span(None, "a"),)))
    flushed = sheet.flush(SOURCE, Chunk((span(None, "a"), span(None, "c", partition=1))))
    assert flushed.next_offsets == {0: 1, 1: 1}
    assert sorted(filter(None, keys(driver))) == ["a", "c"]


def test_a_gap_above_next_is_an_error_that_says_so(sheet: Sheet, driver: Driver) -> None:
    sheet.flush(SOURCE, Chunk((span(None, "a"),)))
    with pytest.raises(SheetBehind, match=r"is at offset 1 of rows.completed/0, but was at 5"):
        sheet.flush(SOURCE, Chunk((span(5, "f", first=5),)))
    assert keys(driver) == ["a"]
    assert sheet.next_offsets(SOURCE) == {0: 1}


def test_a_span_without_rows_moves_next(sheet: Sheet) -> None:
    sheet.flush(SOURCE, Chunk((Span(0, None, 40),)))
    sheet.flush(SOURCE, Chunk((Span(0, 40, 90),)))
    assert sheet.next_offsets(SOURCE) == {0: 90}


def test_a_replay_is_another_reader_with_its_own_next(sheet: Sheet, driver: Driver) -> None:
    sheet.flush(SOURCE, Chunk((span(None, "a", "b"),)))
    replay = Source("replay@cluster", SOURCE.topic)
    assert sheet.next_offsets(replay) == {}
    sheet.flush(replay, Chunk((span(None, "a", "b"),)))
    assert keys(driver) == ["a", "b"]
    with driver.reader() as reader:
        assert reader.counts("leads", "run-1") == {"completed": 2}


def test_what_was_written_is_there_after_reopening(sheet: Sheet, driver: Driver) -> None:
    sheet.flush(SOURCE, Chunk((span(None, "a"),)))
    sheet.close()
    again = driver.open()
    assert again.next_offsets(SOURCE) == {0: 1}
    again.flush(SOURCE, Chunk((span(1, "b", first=1),)))
    assert keys(driver) == ["a", "b"]


@pytest.mark.behaviour("S2")
def test_one_bad_row_is_named_and_the_others_are_written(sheet: Sheet, driver: Driver) -> None:
    """O09: row 500 of 1,000 bad and 1,000 lost is what others did."""
    good = span(None, "a", "b", "c")
    bad = replace(good, rows=(good.rows[0], row("b", index=2**63), good.rows[2]))
    with pytest.raises(RowsRefused) as refused:
        sheet.flush(SOURCE, Chunk((bad,)))
    assert list(refused.value.reasons) == [(0, 1)]
    assert sheet.next_offsets(SOURCE) == {}
    flushed = sheet.flush(SOURCE, Chunk((bad,)).without_rows(refused.value.reasons))
    assert flushed.next_offsets == {0: 3}
    assert keys(driver) == ["a", "c"]
