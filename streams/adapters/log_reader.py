"""Read a whole topic, without a group, and keep following it.

For `runs` and `lanes`, which every process reads to their end before its first other work, and for
the changelog by which a run's main sees progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError

from rowmill.errors import InfrastructureError
from rowmill.settings import Settings
from rowmill.streams.tasks import closed
from rowmill.topics.catalogue import TopicDefinition
from rowmill.topics.connection import client_options

POLL_MS = 200
"""Longest wait for records before waiters are looked at again."""

FETCH_WAIT_MS = 250
"""Longest wait of one fetch at the broker: how often an idle topic still proves that it lives."""

QUICK_FETCH_WAIT_MS = 15
QUICK_S = 3.0
"""While somebody asks for ends, and shortly after: on one connection the broker answers in turn, so a
question for the end of a log waits behind the fetch under way."""

GATHER_BYTES = 1 << 20
"""A fetch that gathers ends with that much, or after the wait."""

QUIET_ANSWERS = 2
"""Empty fetch answers that prove a hole at the end of a log: one may have been cut off by the
bytes that other partitions took, or have been on its way while the position moved."""


class LogUnreadable(InfrastructureError):
    """A topic can't be read: it is missing, refused, or the broker stayed away."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as it lies in the log."""

    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class _Waiter:
    """Somebody waits until everything below `ends` was handed over."""

    ends: dict[TopicPartition, int]
    reached: asyncio.Future[None]
    quiet: dict[TopicPartition, set[int]] = field(default_factory=dict)


class LogReader:
    """Hands every record of a topic to `on_record`, in order within a partition.

    `from_offsets`: where to begin in each partition; the others begin at their beginning. A record
    that lies before the log's beginning is gone; reading then starts at the beginning. A reader
    that died says so through `failed`, `caught_up` and `stop`. A broker that is away is waited for:
    it is no failure.
    """

    def __init__(
        self,
        settings: Settings,
        topic: TopicDefinition,
        on_record: Callable[[LogRecord], None],
        *,
        from_offsets: Mapping[int, int] | None = None,
        gather_ms: int = 0,
    ) -> None:
        """`gather_ms`: how much later records may come, in fewer fetches, while nobody waits."""
        self._gather_ms = gather_ms
        self._settings = settings
        self._topic = f"{settings.topic_prefix}{topic.name}"
        self._on_record = on_record
        self._from = dict(from_offsets or {})
        self._partitions: list[TopicPartition] = []
        self._waiters: list[_Waiter] = []
        self._task: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Looked at by whoever waits for it; nobody may, and that is no error of its own.
        self.failed.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answer_ms = 0
        self._answered_s = time.monotonic()
        self._asked_s = time.monotonic()
        self._consumer = AIOKafkaConsumer(
            **client_options(settings),
            client_id="rowmill-log-reader",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=QUICK_FETCH_WAIT_MS,
            max_partition_fetch_bytes=4 << 20,
        )

    async def start(self) -> None:
        """Start reading. Raises: LogUnreadable where the broker or the topic is not there."""
        try:
            await self._connect()
            self._consumer.assign(self._partitions)
            for place in self._partitions:
                if place.partition in self._from:
                    self._consumer.seek(place, self._from[place.partition])
            beginning = [tp for tp in self._partitions if tp.partition not in self._from]
            if beginning:
                await self._consumer.seek_to_beginning(*beginning)
        except (KafkaError, OSError) as error:
            await closed(self._consumer.stop())
            raise self._unreadable(error) from error
        except BaseException:
            await closed(self._consumer.stop())
            raise
        self._task = asyncio.create_task(self._read(), name=f"read {self._topic}")

    async def read_once(self) -> None:
        """Hand over what the topic holds now, then stop: instead of `start` and `stop`.

        Raises: LogUnreadable; what `on_record` raised.
        """
        await self.start()
        try:
            await self.caught_up()
        finally:
            await self.stop()

    async def look_at_ends(self) -> dict[int, int]:
        """Return `end_offsets` without reading anything: instead of `start` and `stop`."""
        try:
            await self._connect()
            return await self.end_offsets()
        except (KafkaError, OSError) as error:
            raise self._unreadable(error) from error
        finally:
            await closed(self._consumer.stop())

    async def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last record of each partition, as it is now."""
        try:
            ends = await self._consumer.end_offsets(self._partitions)
        except (KafkaError, OSError) as error:
            raise self._unreadable(error) from error
        return {place.partition: end for place, end in ends.items()}

    async def caught_up(self) -> None:
        """Return once every record below the present ends was handed to `on_record`.

        Raises: LogUnreadable, or what `on_record` raised, where the reader died.
        """
        self._asked_s = time.monotonic()
        ends = await self.end_offsets()
        if await self._is_past(ends):
            return
        waiter = _Waiter(
            {place: ends[place.partition] for place in self._partitions},
            asyncio.get_running_loop().create_future(),
        )
        self._waiters.append(waiter)
        if self._task is None or self._task.done():
            self._fail_waiters()
        try:
            await waiter.reached
        finally:
            self._waiters.remove(waiter)

    async def _is_past(self, ends: Mapping[int, int]) -> bool:
        """True where all was handed over already: nothing lies between a position and `on_record`."""
        if self._task is None or self._task.done():
            return False
        for place in self._partitions:
            if await self._consumer.position(place) < ends[place.partition]:
                return False
        return True

    def silent_s(self) -> float:
        """Return seconds since the broker last answered a fetch, with records or without."""
        return time.monotonic() - self._answered_s

    async def stop(self) -> None:
        """Stop reading. Raises: what the reader died of, if it did."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await closed(self._consumer.stop())
        self._fail_waiters()
        if self.failed.done():
            self.failed.result()

    async def _connect(self) -> None:
        await self._consumer.start()
        found = await self._partitions_of_topic()
        self._partitions = [TopicPartition(self._topic, number) for number in sorted(found)]

    async def _partitions_of_topic(self) -> set[int]:
        # All topics' metadata: asking for one by its name would create it where the broker allows
        # that. `AIOKafkaConsumer.topics()` asks the same and keeps the partitions to itself.
        cluster = await self._consumer._client.fetch_all_metadata()
        found: set[int] | None = cluster.partitions_for_topic(self._topic)
        if not found:
            raise LogUnreadable(
                f'No topic "{self._topic}" on {self._settings.bootstrap}. '
                "Create the topics: rowmill topics create."
            )
        return found

    async def _read(self) -> None:
        try:
            while True:
                self._pace_fetches()
                batch = await self._consumer.getmany(timeout_ms=POLL_MS)
                self._note_answer()
                for records in batch.values():
                    for record in records:
                        self._on_record(_log_record(record))
                if self._waiters:
                    await self._settle(had_records=bool(batch))
        except asyncio.CancelledError:
            raise
        except (KafkaError, OSError) as error:
            self._fail(self._unreadable(error))
        except Exception as error:  # noqa: BLE001 - on_record may raise anything; it ends the reader
            self._fail(error)

    def _pace_fetches(self) -> None:
        fetcher = self._consumer._fetcher
        if self._gather_ms and not self._waiters:
            fetcher._fetch_max_wait_ms, fetcher._fetch_min_bytes = self._gather_ms, GATHER_BYTES
            return
        quick = self._waiters or time.monotonic() - self._asked_s < QUICK_S
        wait_ms = QUICK_FETCH_WAIT_MS if quick else FETCH_WAIT_MS
        fetcher._fetch_max_wait_ms, fetcher._fetch_min_bytes = wait_ms, 1

    def _note_answer(self) -> None:
        answers = [self._consumer.last_poll_timestamp(place) or 0 for place in self._partitions]
        newest = max(answers)
        if newest != self._answer_ms:
            self._answer_ms, self._answered_s = newest, time.monotonic()

    async def _settle(self, *, had_records: bool) -> None:
        for waiter in list(self._waiters):
            if had_records:
                waiter.quiet.clear()
            for place in list(waiter.ends):
                if await self._is_reached(waiter, place):
                    del waiter.ends[place]
            if not waiter.ends and not waiter.reached.done():
                waiter.reached.set_result(None)

    async def _is_reached(self, waiter: _Waiter, place: TopicPartition) -> bool:
        """True where no record below the waiter's end is left.

        The position alone does not tell: a compacted log may have nothing left before its end, and
        an empty answer moves no position. So enough empty answers count too.
        """
        end = waiter.ends[place]
        if await self._consumer.position(place) >= end:
            return True
        answered_ms = self._consumer.last_poll_timestamp(place)
        if answered_ms is None or (self._consumer.highwater(place) or 0) < end:
            return False
        answers = waiter.quiet.setdefault(place, set())
        answers.add(answered_ms)
        # The first may be older than the last record.
        return len(answers) > QUIET_ANSWERS

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
        self._fail_waiters()

    def _fail_waiters(self) -> None:
        error = self.failed.exception() if self.failed.done() else None
        for waiter in self._waiters:
            if not waiter.reached.done():
                waiter.reached.set_exception(
                    error or LogUnreadable(f'The reader of "{self._topic}" was stopped.')
                )

    def _unreadable(self, error: BaseException) -> LogUnreadable:
        if isinstance(error, KafkaConnectionError | OSError):
            return LogUnreadable(no_kafka(self._settings, error))
        return LogUnreadable(
            f'Topic "{self._topic}" on {self._settings.bootstrap} can\'t be read: {error}'
        )


def no_kafka(settings: Settings, error: BaseException) -> str:
    """Return a sentence for a broker that does not answer, with what to do."""
    todo = "Start it: rowmill kafka start." if settings.embedded else "Check ROWMILL_KAFKA."
    # aiokafka's own words only repeat the address; the network's may name the cause.
    why = "" if isinstance(error, KafkaConnectionError) else f" ({error})"
    return f"No Kafka answers at {settings.bootstrap}{why}. {todo}"


def _log_record(record: Any) -> LogRecord:
    return LogRecord(
        partition=record.partition,
        offset=record.offset,
        key="" if record.key is None else record.key.decode("utf-8", "replace"),
        value=record.value,
        timestamp_ms=record.timestamp,
        headers=tuple(record.headers),
    )


async def cluster_id(settings: Settings) -> str:
    """Return the id that the cluster gave itself. Raises: LogUnreadable."""
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        found = await admin.describe_cluster()
    except (KafkaError, OSError) as error:
        raise LogUnreadable(no_kafka(settings, error)) from error
    finally:
        await closed(admin.close())
    return str(found["cluster_id"])


async def end_offsets(settings: Settings, topic: TopicDefinition) -> dict[int, int]:
    """Return the offset after the last record of each of a topic's partitions, as it is now.

    Raises: LogUnreadable.
    """
    reader = LogReader(settings, topic, lambda _record: None)
    return await reader.look_at_ends()
