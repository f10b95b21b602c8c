"""The producer: records enqueued at once, deliveries counted, a strict flush before each commit.

Faust's own road costs a FutureMessage, a task switch and two sensor calls a record, its `flush`
gives up after 0.1 s with records unsent, and it ignores failed deliveries. This one appends straight
to aiokafka's open batch and counts per batch, from the first record to the broker's answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, ProducerClosed
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from faust.transport.drivers.aiokafka import Producer

from rowmill.errors import InfrastructureError, RowmillError
from rowmill.streams.ports import Note, silent
from rowmill.topics.places import partition_of_key

log = structlog.get_logger(__name__)

Headers = list[tuple[str, bytes]]

BROKER_ANSWERS_S = 10.0

_MARK = object()
"""Stands in a line of waiting records for a flush that wants all before it enqueued."""


class RecordTooLarge(RowmillError):
    """A record above the producer's limit. Nothing was enqueued, nothing stops."""

    def __init__(self, topic: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a record of {size_bytes:,} bytes for topic {topic}; the limit is {limit_bytes:,}."
        )


class DeliveryFailed(InfrastructureError):
    """The broker did not take a record. The worker stops before it commits anything more."""

    def __init__(self, topic: str, partition: int, error: BaseException) -> None:
        super().__init__(
            f"records for {topic}/{partition} were not delivered: {error!r}. Nothing was committed"
            " after them; the worker does that work again when it is back."
        )


class StrictProducer(Producer):
    """Faust's aiokafka producer with `enqueue`, `pending` and a flush that means it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._backlogs: dict[TopicPartition, deque[tuple[Any, ...]]] = {}
        self._unresolved: dict[str, list[tuple[Any, ...]]] = {}
        self._batches: set[asyncio.Future[Any]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._partitions: dict[str, int] = {}
        self._tps: dict[tuple[str, int], TopicPartition] = {}
        self.failure: DeliveryFailed | None = None
        self._note: Note = getattr(self.app, "note", silent)

    def _settings_extra(self) -> dict[str, Any]:
        # Idempotence: a lost answer doubles no record, and a batch never expires while the broker is
        # away (the worker waits, nothing fails). An idempotent producer can fail for good
        # (aiokafka 1017): its delivery fails, and that ends the process.
        return {"acks": "all", "enable_idempotence": True, **cast(Any, self.app).client_options}

    def _settings_auth(self) -> dict[str, Any]:
        # RoleApp.client_options has them, for consumer, producer and changelog readers alike.
        return {}

    async def on_start(self) -> None:
        """Connect, and see every batch that is made from now on."""
        await super().on_start()
        self._watch_batches()

    def _watch_batches(self) -> None:
        accumulator = self._accumulator
        append = accumulator._append_batch

        def watched(builder: Any, tp: TopicPartition) -> Any:
            batch = append(builder, tp)
            self._batches.add(batch.future)
            batch.future.add_done_callback(lambda done: self._batch_done(tp, done))
            return batch

        accumulator._append_batch = watched

    async def on_stop(self) -> None:
        """Give up what is not enqueued, then close."""
        for task in self._sending:
            task.cancel()
        await super().on_stop()

    @property
    def pending(self) -> bool:
        """True while anything is enqueued and not delivered."""
        return bool(self._batches or self._backlogs or self._unresolved)

    async def reaches_broker(self) -> bool:
        """Ask the cluster for its metadata; False where nobody answers within 10 s."""
        try:
            asked = self._ensure_producer().client.fetch_all_metadata()
            await asyncio.wait_for(asked, BROKER_ANSWERS_S)
        except (KafkaError, TimeoutError, OSError):
            return False
        return True

    async def learn(self, topics: Iterable[str]) -> None:
        """Fetch the metadata of `topics`, so that `enqueue` can name partitions at once."""
        for topic in topics:
            self._partitions[topic] = len(await self._ensure_producer().partitions_for(topic))

    def enqueue(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers | None,
    ) -> asyncio.Future[Any]:
        """Append a record and return the future of the broker's answer (topic, partition, offset).

        Records of one partition keep the order of their calls. `partition` None: murmur2 of the
        key, Kafka's default. The future is aiokafka's own: cancelling it unsends nothing.
        Raises: RecordTooLarge; DeliveryFailed after a delivery has failed.
        """
        sent = self._enqueue(topic, key, value, partition, headers)
        if self._note is not silent:
            sent.add_done_callback(lambda done: self._note_written(key, done))
        return sent

    def _enqueue(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers | None,
    ) -> asyncio.Future[Any]:
        if self.failure is not None:
            raise self.failure
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, headers or [])
        if size > self.max_request_size:
            raise RecordTooLarge(topic, size, self.max_request_size)
        count = self._partitions.get(topic)
        if count is None or topic in self._unresolved:
            return self._enqueue_unresolved(topic, key, value, partition, headers)
        if partition is None:
            partition = partition_of_key(key or b"", count)
        return self._append(self._tp(topic, partition), key, value, headers)

    async def flush(self) -> None:
        """Wait until everything enqueued so far is delivered. Raises: DeliveryFailed.

        Faust's flush returns after 0.1 s with records unsent and never looks at what came of them.
        """
        loop = asyncio.get_running_loop()
        marks = [loop.create_future() for _ in (*self._backlogs, *self._unresolved)]
        for waiting, mark in zip(
            (*self._backlogs.values(), *self._unresolved.values()), marks, strict=True
        ):
            waiting.append((_MARK, mark))
        if marks:
            await asyncio.wait(marks)
        if self._batches:
            await asyncio.wait(set(self._batches))
            # Their own callbacks run after this wakes up, and one of them may have failed.
            await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure

    def _note_written(self, key: bytes | None, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            at, app = done.result(), cast(Any, self.app)
            topic, key_text = app.plain_name(at.topic), (key or b"").decode(errors="replace")
            self._note(
                "written", topic=topic, partition=at.partition, offset=at.offset, key=key_text
            )

    @property
    def _accumulator(self) -> Any:
        return self._ensure_producer()._message_accumulator

    def _tp(self, topic: str, partition: int) -> TopicPartition:
        tp = self._tps.get((topic, partition))
        if tp is None:
            tp = self._tps[topic, partition] = TopicPartition(topic, partition)
        return tp

    def _append(
        self, tp: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers | None
    ) -> asyncio.Future[Any]:
        backlog = self._backlogs.get(tp)
        if backlog is None:
            future = self._try_append(tp, key, value, headers)
            if future is not None:
                return future
            backlog = self._backlogs[tp] = deque()
            self._spawn(self._work_off(tp, backlog))
        promise: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        backlog.append((key, value, headers, promise))
        return promise

    def _try_append(
        self, tp: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers | None
    ) -> asyncio.Future[Any] | None:
        """Append to the partition's open batch, None where it is full. As `add_message` does."""
        accumulator = self._accumulator
        if accumulator._closed:
            raise ProducerClosed()
        if accumulator._exception is not None:
            raise DeliveryFailed(tp.topic, tp.partition, accumulator._exception)
        batches = accumulator._batches.get(tp)
        batch = (
            batches[-1] if batches else accumulator._append_batch(accumulator.create_builder(), tp)
        )
        future: asyncio.Future[Any] | None = batch.append(key, value, None, headers=headers or [])
        if future is None and not accumulator._waiter_future.done():
            accumulator._waiter_future.set_result(None)
        return future

    async def _work_off(self, tp: TopicPartition, backlog: deque[tuple[Any, ...]]) -> None:
        """Append what came while the partition's batch was full, as its batches leave."""
        while backlog:
            if backlog[0][0] is _MARK:
                _resolve_mark(backlog.popleft())
                continue
            key, value, headers, promise = backlog[0]
            try:
                future = self._try_append(tp, key, value, headers)
                if future is None:
                    await self._accumulator._batches[tp][-1].wait_drain()
                    continue
            except (KafkaError, DeliveryFailed) as error:
                self._fail(tp, error)
                break
            backlog.popleft()
            _chain(future, promise)
        _abandon(backlog, self.failure)
        del self._backlogs[tp]

    def _enqueue_unresolved(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers | None,
    ) -> asyncio.Future[Any]:
        promise: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if topic not in self._unresolved:
            self._unresolved[topic] = []
            self._spawn(self._resolve(topic))
        self._unresolved[topic].append((key, value, partition, headers, promise))
        return promise

    async def _resolve(self, topic: str) -> None:
        try:
            await self.learn([topic])
        except KafkaError as error:
            self._fail(TopicPartition(topic, -1), error)
            _abandon(self._unresolved.pop(topic), self.failure)
            return
        for record in self._unresolved.pop(topic):
            if record[0] is _MARK:
                _resolve_mark(record)
                continue
            key, value, partition, headers, promise = record
            _chain(self._enqueue(topic, key, value, partition, headers), promise)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _batch_done(self, tp: TopicPartition, done: asyncio.Future[Any]) -> None:
        self._batches.discard(done)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            self._fail(tp, error)

    def _fail(self, tp: TopicPartition, error: BaseException) -> None:
        if self.failure is None:
            self.failure = DeliveryFailed(tp.topic, tp.partition, error)
            if not self.app.should_stop:
                log.error(
                    "delivery_failed", topic=tp.topic, partition=tp.partition, error=repr(error)
                )
                self._spawn(self.app.crash(self.failure))


def _resolve_mark(mark: tuple[Any, ...]) -> None:
    if not mark[1].done():
        mark[1].set_result(None)


def _abandon(waiting: Iterable[tuple[Any, ...]], failure: BaseException | None) -> None:
    """Settle what waited for a batch that will never come."""
    for record in waiting:
        if record[0] is _MARK:
            _resolve_mark(record)
        elif not record[-1].done():
            record[-1].set_exception(failure or ProducerClosed())


def _chain(source: asyncio.Future[Any], promise: asyncio.Future[Any]) -> None:
    """Hand the broker's answer on to a record that had to wait for its batch."""

    def settle(done: asyncio.Future[Any]) -> None:
        if promise.done():
            return
        if done.cancelled():
            promise.cancel()
        elif (error := done.exception()) is not None:
            promise.set_exception(error)
        else:
            promise.set_result(done.result())

    source.add_done_callback(settle)
