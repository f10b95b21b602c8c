"""A sheet's loop: acknowledged only when durable, tried again for ever, never in another's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from rowmill.streams.core.identity import digest
from rowmill.streams.ports import RowsRefused, SheetBehind, SheetUnusable, SheetUnwritable
from rowmill.streams.sink import flush as flush_module
from rowmill.streams.sink.flush import Limits
from tests.kit.until import until
from tests.unit.streams.sink.stand_ins import Bench, MemorySheet, delivered, run_record

SOON = Limits(rows=3, bytes=1 << 20, linger_ms=10)
LATE = Limits(rows=3, bytes=1 << 20, linger_ms=600_000)

Start = Callable[..., Bench]


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Start a flushing of partitions that are read from the offsets given."""
    monkeypatch.setattr(flush_module, "BACKOFF_S", (0.005, 0.02))
    tasks: list[asyncio.Task[None]] = []
    benches: list[Bench] = []

    def started(
        sheet: MemorySheet | None = None,
        limits: Limits = SOON,
        reads_from: dict[int, int] | None = None,
        open_fault: list[Exception] | None = None,
        is_new: bool = False,
    ) -> Bench:
        bench = Bench(sheet or MemorySheet(), limits, open_fault if open_fault is not None else [])
        bench.flush.begin(reads_from or {0: 0}, is_new=is_new)
        tasks.append(asyncio.create_task(bench.flush.run()))
        benches.append(bench)
        return bench

    yield started
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for bench in benches:
        await bench.flush.close()


@pytest.mark.behaviour("S2")
async def test_a_row_is_acknowledged_once_it_is_durable(start: Start) -> None:
    bench = start()
    one = delivered("a", 0)
    bench.offer(one)
    assert not one.acked
    await until(lambda: one.acked, within_s=5)
    assert bench.sheet.rows == [digest("a")]
    assert bench.sheet.prepared == [("leads", ["key"], ["v"])]


@pytest.mark.behaviour("S2")
async def test_a_full_chunk_does_not_wait_for_the_linger(start: Start) -> None:
    bench = start(limits=LATE)
    rows = [delivered(str(at), at) for at in range(7)]
    for one in rows:
        bench.offer(one)
    await until(lambda: sum(one.acked for one in rows) == 6, within_s=5)
    assert [chunk.row_count for chunk in bench.sheet.chunks] == [3, 3]
    await bench.flush.drain()
    assert rows[6].acked


async def test_what_the_sheet_has_is_acknowledged_at_once(start: Start) -> None:
    bench = start(MemorySheet(next={0: 5}))
    bench.flush.note_run(run_record())
    await until(lambda: bench.flush.next == {0: 5}, within_s=5)
    old, new = delivered("old", 4), delivered("new", 5)
    bench.offer(old)
    bench.offer(new)
    assert old.acked
    await until(lambda: new.acked, within_s=5)
    assert bench.sheet.rows == [digest("new")]


@pytest.mark.behaviour("G3")
async def test_an_unwritable_sheet_loses_nothing_and_says_so(start: Start) -> None:
    sheet = MemorySheet(fault=lambda _: SheetUnwritable("disk full"))
    bench = start(sheet)
    one = delivered("a", 0)
    bench.offer(one)
    await until(lambda: sheet.flushes >= 3, within_s=5)
    assert bench.flush.trouble == "disk full"
    assert bench.flush.is_stuck
    assert not one.acked
    sheet.fault = lambda _: None
    await until(lambda: one.acked, within_s=5)
    assert bench.flush.trouble is None
    assert sheet.rows == [digest("a")]


@pytest.mark.behaviour("G3")
async def test_fetching_stops_while_too_many_rows_wait(start: Start) -> None:
    sheet = MemorySheet(fault=lambda _: SheetUnwritable("locked"))
    bench = start(sheet)
    rows = [delivered(str(at), at) for at in range(40)]
    for one in rows:
        bench.offer(one)
    assert bench.pressure == [True]
    sheet.fault = lambda _: None
    await until(lambda: all(one.acked for one in rows), within_s=5)
    assert bench.pressure == [True, False]


async def test_a_sheet_that_can_not_be_opened_is_tried_again_when_rows_wait(start: Start) -> None:
    faults: list[Exception] = [SheetUnusable("the directory does not exist")]
    bench = start(open_fault=faults)
    one = delivered("a", 0)
    bench.offer(one)
    await until(lambda: bench.flush.trouble, within_s=5)
    faults.clear()
    await until(lambda: one.acked, within_s=5)


async def test_a_refused_row_is_set_aside_and_the_others_are_written(start: Start) -> None:
    bad = digest("bad")

    def refuses(chunk: object) -> Exception | None:
        spans = chunk.spans  # type: ignore[attr-defined]
        found = {
            (span.partition, offset): "index too large"
            for span in spans
            for offset, write in zip(span.offsets, span.rows, strict=True)
            if write.row == bad
        }
        return RowsRefused(found) if found else None

    bench = start(MemorySheet(fault=refuses))
    rows = [delivered("a", 0), delivered("bad", 1), delivered("b", 2)]
    for one in rows:
        bench.offer(one)
    await until(lambda: rows[0].acked and rows[2].acked, within_s=5)
    assert bench.aside == [(rows[1], "the sheet can't hold this row: index too large")]
    assert not rows[1].acked  # the dead letter acknowledges it
    assert bench.sheet.next == {0: 3}


async def test_a_sheet_that_fell_behind_ends_the_process(start: Start) -> None:
    bench = start(MemorySheet(fault=lambda _: SheetBehind("an older copy")))
    bench.offer(delivered("a", 0))
    await until(lambda: bench.failures, within_s=5)
    assert str(bench.failures[0]) == "an older copy"


@pytest.mark.parametrize(
    ("next_", "is_new", "fails"),
    [({0: 7}, False, True), ({}, False, True), ({}, True, False), ({0: 9}, False, False)],
    ids=["behind", "lost", "new", "level"],
)
async def test_a_sheet_opened_late_never_passes_over_what_it_lacks(
    start: Start, next_: dict[int, int], is_new: bool, fails: bool
) -> None:
    """Reading began at 9 without knowing the sheet: one that wants less must be read again."""
    bench = start(MemorySheet(next=dict(next_)), reads_from={0: 9}, is_new=is_new)
    one = delivered("a", 9)
    bench.offer(one)
    await until(lambda: bench.failures if fails else one.acked, within_s=5)
    assert (bench.sheet.next == next_) is fails
    assert bool(bench.failures) is fails


@pytest.mark.behaviour("S4")
async def test_an_open_runs_sheet_follows_over_records_of_other_sheets(start: Start) -> None:
    bench = start()
    bench.flush.note_run(run_record())
    bench.positions[0] = 50
    await until(lambda: bench.sheet.next == {0: 50}, within_s=5)
    assert bench.sheet.rows == []


async def test_a_sheet_of_no_open_run_is_left_alone_until_partitions_leave(start: Start) -> None:
    bench = start()
    bench.flush.note_run(run_record())
    await until(lambda: bench.flush.next is not None, within_s=5)
    bench.flush.note_run(run_record(state="finished"))
    await bench.flush.drain()
    flushes = bench.sheet.flushes
    bench.positions[0] = 50
    await asyncio.sleep(SOON.linger_ms * 5 / 1000)  # long enough for a loop that would not wait
    assert bench.sheet.flushes == flushes
    await bench.flush.drain()
    assert bench.sheet.next == {0: 50}


async def test_rows_of_a_partition_that_left_are_not_written(start: Start) -> None:
    sheet = MemorySheet(fault=lambda _: SheetUnwritable("locked"))
    bench = start(sheet, reads_from={0: 0, 1: 0})
    gone, kept = delivered("gone", 0), delivered("kept", 0, partition=1)
    bench.offer(gone)
    bench.offer(kept)
    await until(lambda: bench.flush.is_stuck, within_s=5)
    await bench.flush.drain()  # returns: the sheet can't be written now
    bench.flush.forget({0})
    sheet.fault = lambda _: None
    await until(lambda: kept.acked, within_s=5)
    assert not gone.acked
    assert sheet.rows == [digest("kept")]
    assert 0 not in sheet.next


async def test_rows_that_waited_for_the_sheet_are_dropped_with_their_partition(
    start: Start,
) -> None:
    faults: list[Exception] = [SheetUnusable("away")]
    bench = start(open_fault=faults)
    one = delivered("a", 0)
    bench.offer(one)
    bench.flush.forget({0})
    assert bench.flush.rows_waiting == 0
