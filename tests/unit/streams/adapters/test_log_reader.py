"""When everything below the end was read, also where compaction left nothing at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from rowmill.settings import Settings
from rowmill.streams.adapters import log_reader
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.topics.catalogue import RUNS
from tests.kit.until import until

PLACE = TopicPartition("runs", 0)


class CompactedTail:
    """A consumer of a log that ends at 10 and holds nothing from `position` on."""

    def __init__(self, **_: Any) -> None:
        self.at = 3
        self.answers = 0
        self.answering = True
        self.stops = self.stopped = False
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.waiting: deque[dict[TopicPartition, list[Any]]] = deque()
        self._client = SimpleNamespace(fetch_all_metadata=self._metadata)
        self._fetcher = SimpleNamespace()

    async def _metadata(self) -> Any:
        return SimpleNamespace(partitions_for_topic=lambda _topic: {0})

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """As aiokafka's: a cancellation is taken for that of a task of its own."""
        self.stops = True
        with contextlib.suppress(asyncio.CancelledError):
            await self.may_stop.wait()
        self.stopped = True

    def assign(self, _places: list[TopicPartition]) -> None: ...

    async def seek_to_beginning(self, *_places: TopicPartition) -> None: ...

    async def end_offsets(self, _places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {PLACE: 10}

    async def getmany(self, **_: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        self.answers += self.answering
        return self.waiting.popleft() if self.waiting else {}

    async def position(self, _place: TopicPartition) -> int:
        return self.at

    def last_poll_timestamp(self, _place: TopicPartition) -> int:
        return self.answers

    def highwater(self, _place: TopicPartition) -> int:
        return 10


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> list[CompactedTail]:
    made: list[CompactedTail] = []

    def make(**options: Any) -> CompactedTail:
        made.append(CompactedTail(**options))
        return made[-1]

    monkeypatch.setattr(log_reader, "AIOKafkaConsumer", make)
    return made


async def test_a_tail_that_compaction_emptied_is_not_waited_for(
    consumer: list[CompactedTail],
) -> None:
    reader = LogReader(Settings(), RUNS, lambda _record: None)
    await reader.start()
    await asyncio.wait_for(reader.caught_up(), 5)
    await reader.stop()


async def test_a_broker_that_does_not_answer_proves_no_empty_tail(
    consumer: list[CompactedTail],
) -> None:
    reader = LogReader(Settings(), RUNS, lambda _record: None)
    await reader.start()
    consumer[0].answering = False
    caught_up = asyncio.create_task(reader.caught_up())
    for _ in range(200):
        await asyncio.sleep(0)
    assert not caught_up.done()
    consumer[0].answering = True
    await asyncio.wait_for(caught_up, 5)
    await reader.stop()


async def test_records_that_still_come_are_handed_over_first(
    consumer: list[CompactedTail],
) -> None:
    found: list[LogRecord] = []
    reader = LogReader(Settings(), RUNS, found.append)
    record = SimpleNamespace(partition=0, offset=3, key=b"k", value=b"v", timestamp=1, headers=())
    await reader.start()
    for _ in range(50):
        consumer[0].waiting.append({PLACE: [record]})
    await reader.caught_up()
    assert len(found) == 50
    await reader.stop()


async def test_a_reader_that_is_stopped_leaves_nobody_waiting(
    consumer: list[CompactedTail],
) -> None:
    reader = LogReader(Settings(), RUNS, lambda _record: None)
    await reader.start()
    consumer[0].answering = False
    caught_up = asyncio.create_task(reader.caught_up())
    await until(lambda: reader._waiters, within_s=5)
    await reader.stop()
    with pytest.raises(log_reader.LogUnreadable, match="was stopped"):
        await caught_up


async def test_fetches_gather_only_while_nobody_waits(consumer: list[CompactedTail]) -> None:
    reader = LogReader(Settings(), RUNS, lambda _record: None, gather_ms=50)
    await reader.start()
    fetcher: Any = consumer[0]._fetcher
    await until(
        lambda: vars(fetcher).get("_fetch_min_bytes") == log_reader.GATHER_BYTES, within_s=5
    )
    assert fetcher._fetch_max_wait_ms == 50
    consumer[0].answering = False
    waiting = asyncio.create_task(reader.caught_up())
    await until(lambda: fetcher._fetch_min_bytes == 1, within_s=5)
    consumer[0].answering = True
    await asyncio.wait_for(waiting, 5)
    await until(lambda: fetcher._fetch_min_bytes == log_reader.GATHER_BYTES, within_s=5)
    await reader.stop()


async def test_a_cancellation_while_a_consumer_stops_is_not_lost(
    consumer: list[CompactedTail],
) -> None:
    """Who looks for ends in an endless task was never done: `rowmill run` hung at its end."""
    reader = LogReader(Settings(), RUNS, lambda _record: None)
    looking = asyncio.create_task(reader.look_at_ends())
    await until(lambda: bool(consumer), within_s=5)
    consumer[0].may_stop.clear()
    await until(lambda: consumer[0].stops, within_s=5)
    looking.cancel()
    await asyncio.sleep(0)
    assert not consumer[0].stopped, "a consumer is closed to its end"
    consumer[0].may_stop.set()
    await asyncio.wait([looking])
    assert looking.cancelled()
    assert consumer[0].stopped
