"""Chunks are cut by rows, by bytes and by time, and their spans join."""

from __future__ import annotations

import pytest

from rowmill.streams.core.chunks import Chunk, ChunkBuilder, Span


def builder(rows_max: int = 3, bytes_max: int = 100, linger_ms: int = 250) -> ChunkBuilder[str]:
    made = ChunkBuilder[str](rows_max=rows_max, bytes_max=bytes_max, linger_ms=linger_ms)
    made.begin(0, 10)
    return made


@pytest.mark.behaviour("S2")
def test_a_chunk_is_due_when_it_has_its_rows() -> None:
    chunks = builder()
    for offset in (10, 11, 12):
        assert chunks.due_ms(passed_linger_ms=250) != 0
        chunks.offer(0, offset, f"r{offset}", 1, now_ms=0)
    assert chunks.due_ms(passed_linger_ms=250) == 0
    assert chunks.take() == Chunk((Span(0, 10, 13, (10, 11, 12), ("r10", "r11", "r12")),))


@pytest.mark.behaviour("S2")
def test_a_chunk_is_cut_by_bytes_and_the_next_begins_where_it_ended() -> None:
    chunks = builder()
    for offset in (10, 12):
        chunks.offer(0, offset, f"r{offset}", 60, now_ms=0)
    assert chunks.due_ms(passed_linger_ms=250) == 0
    assert chunks.take() == Chunk((Span(0, 10, 11, (10,), ("r10",)),))
    assert chunks.take() == Chunk((Span(0, 11, 13, (12,), ("r12",)),))
    assert chunks.take() is None


@pytest.mark.behaviour("S2")
def test_a_row_above_the_byte_limit_makes_a_chunk_of_its_own() -> None:
    chunks = builder()
    chunks.offer(0, 10, "big", 500, now_ms=0)
    chunks.offer(0, 11, "small", 1, now_ms=0)
    first = chunks.take()
    assert first is not None
    assert first.spans[0].rows == ("big",)


@pytest.mark.behaviour("S2")
def test_a_lone_row_is_due_after_the_linger() -> None:
    chunks = builder()
    chunks.offer(0, 10, "r", 1, now_ms=1_000)
    chunks.offer(0, 11, "s", 1, now_ms=1_200)
    assert chunks.due_ms(passed_linger_ms=9) == 1_250


def test_records_of_other_sheets_move_a_sheet_on_without_rows() -> None:
    chunks = builder()
    assert chunks.due_ms(passed_linger_ms=400) is None
    chunks.passed(0, 25, now_ms=7)
    chunks.passed(0, 30, now_ms=100)
    assert chunks.due_ms(passed_linger_ms=400) == 407
    assert chunks.take() == Chunk((Span(0, 10, 30),))
    assert chunks.due_ms(passed_linger_ms=400) is None


def test_a_span_never_covers_a_row_that_stayed_behind() -> None:
    chunks = builder(rows_max=1)
    chunks.offer(0, 10, "now", 1, now_ms=0)
    chunks.offer(0, 20, "later", 1, now_ms=0)
    chunks.passed(0, 40, now_ms=0)
    first, second = chunks.take(), chunks.take()
    assert first == Chunk((Span(0, 10, 11, (10,), ("now",)),))
    assert second == Chunk((Span(0, 11, 40, (20,), ("later",)),))


def test_a_row_that_the_sheet_has_is_not_taken_in() -> None:
    chunks = builder()
    assert not chunks.offer(0, 9, "old", 1, now_ms=0)
    assert chunks.rows_waiting == 0


def test_offsets_that_fall_are_refused() -> None:
    chunks = builder()
    chunks.offer(0, 12, "r", 1, now_ms=0)
    with pytest.raises(ValueError, match="partition 0: offset 11 after 12"):
        chunks.offer(0, 11, "s", 1, now_ms=0)


def test_a_partition_that_left_takes_its_rows_along() -> None:
    chunks = builder()
    chunks.begin(1, None)
    chunks.offer(0, 10, "a", 7, now_ms=0)
    chunks.offer(1, 0, "b", 5, now_ms=0)
    chunks.forget({0})
    assert (chunks.rows_waiting, chunks.bytes_waiting) == (1, 5)
    assert chunks.take() == Chunk((Span(1, None, 1, (0,), ("b",)),))


def test_what_a_sheet_already_has_is_cut_off_a_span() -> None:
    span = Span(0, 5, 20, (5, 9, 15), ("a", "b", "c"))
    assert span.from_offset(10) == Span(0, 10, 20, (15,), ("c",))
    assert span.from_offset(18) == Span(0, 18, 20)
    assert span.from_offset(20) is None


def test_a_refused_row_is_left_out_but_stays_covered() -> None:
    chunk = Chunk((Span(0, 0, 3, (0, 1), ("a", "b")), Span(1, 0, 2, (1,), ("c",))))
    assert chunk.without_rows({(0, 1)}) == Chunk(
        (Span(0, 0, 3, (0,), ("a",)), Span(1, 0, 2, (1,), ("c",)))
    )


@pytest.mark.parametrize("limit", ["rows_max", "bytes_max", "linger_ms"])
def test_limits_below_1_are_refused(limit: str) -> None:
    limits = {"rows_max": 1, "bytes_max": 1, "linger_ms": 1, limit: 0}
    with pytest.raises(ValueError):
        ChunkBuilder[str](**limits)
