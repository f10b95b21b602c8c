from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import MessageAccumulator

from rowmill.settings import Settings
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.engine.app import role_app
from rowmill.streams.engine.producer import DeliveryFailed, RecordTooLarge, StrictProducer

TP = TopicPartition("t", 0)


class Broker:
    """aiokafka's accumulator with the test in the place of its sender."""

    def __init__(self) -> None:
        self.accumulator = MessageAccumulator(SimpleNamespace(), 1_000, 0, 30)

    def take(self, tp: TopicPartition = TP) -> Any:
        """Take the partition's batch, as the sender does when it sends."""
        return self.accumulator._pop_batch(tp)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[tuple[StrictProducer, Broker, list[Any]]]:
    settings = Settings(kafka="127.0.0.1:1", home=tmp_path)
    app = role_app("rows", settings, store=tmp_path / "w0", secrets=EnvironmentSecrets({}))
    producer, broker, crashes = app.strict_producer, Broker(), []

    async def crash(reason: BaseException) -> None:
        crashes.append(reason)

    app.crash = crash  # type: ignore[method-assign]
    producer._producer = SimpleNamespace(_message_accumulator=broker.accumulator)
    producer._watch_batches()
    producer._partitions = {"t": 2}
    yield producer, broker, crashes
    app.directory.release()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_record_resolves_with_its_offset(bench: Any) -> None:
    producer, broker, _ = bench
    sent = [producer.enqueue("t", b"k", b"v%d" % number, 0, None) for number in range(3)]
    assert producer.pending
    broker.take().done(base_offset=40)
    await turns()
    assert [future.result().offset for future in sent] == [40, 41, 42]
    assert not producer.pending


async def test_without_a_partition_kafka_s_default_partitioner_decides(bench: Any) -> None:
    producer, broker, _ = bench
    for key in (b"21", b"foobar", b"a-little-bit-long-string"):
        producer.enqueue("t", key, b"v", None, None)
    batches = {
        tp.partition: len(found[0]._msg_futures)
        for tp, found in broker.accumulator._batches.items()
    }
    # murmur2 of Kafka's own tests: -973932308, -790332482, -985981536
    assert batches == {
        partition: count
        for partition, count in (
            (0, [h % 2 for h in _positive(-973932308, -790332482, -985981536)].count(0)),
            (1, [h % 2 for h in _positive(-973932308, -790332482, -985981536)].count(1)),
        )
        if count
    }


def _positive(*hashes: int) -> list[int]:
    return [value & 0x7FFFFFFF for value in hashes]


async def test_records_beyond_a_full_batch_keep_their_order(bench: Any) -> None:
    producer, broker, _ = bench
    sent = [producer.enqueue("t", b"k", b"%03d" % number * 60, 0, None) for number in range(12)]
    offset = 0
    while producer.pending:
        batch = broker.take()
        batch.done(base_offset=offset)
        offset += batch.record_count
        await turns()
    assert [future.result().offset for future in sent] == list(range(12))


async def test_a_flush_waits_for_everything_before_it_and_nothing_after(bench: Any) -> None:
    """Faust's returns after 0.1 s with records unsent."""
    producer, broker, _ = bench
    for number in range(12):
        producer.enqueue("t", b"k", b"%03d" % number * 60, 0, None)
    flush = asyncio.ensure_future(producer.flush())
    taken = 0
    while taken < 12:
        await turns()
        assert not flush.done()
        batch = broker.take()
        taken += batch.record_count
        later = producer.enqueue("t", b"later", b"v", 1, None) if taken >= 12 else None
        batch.done(base_offset=0)
    await turns()
    assert flush.done()
    assert later is not None
    assert not later.done()


async def test_a_flush_is_not_fooled_by_whoever_cancels_a_future(bench: Any) -> None:
    producer, broker, _ = bench
    producer.enqueue("t", b"k", b"v", 0, None).cancel()
    flush = asyncio.ensure_future(producer.flush())
    await turns()
    assert not flush.done()
    broker.take().done(base_offset=0)
    await turns()
    assert flush.done()


async def test_a_failed_delivery_fails_the_flush_and_every_later_record(bench: Any) -> None:
    producer, broker, crashes = bench
    sent = producer.enqueue("t", b"k", b"v", 0, None)
    flush = asyncio.ensure_future(producer.flush())
    await turns()
    broker.take().failure(KafkaError("refused"))
    await turns()
    with pytest.raises(DeliveryFailed, match="t/0"):
        await flush
    assert isinstance(sent.exception(), KafkaError)
    with pytest.raises(DeliveryFailed):
        producer.enqueue("t", b"k", b"v", 0, None)
    with pytest.raises(DeliveryFailed):
        await producer.flush()
    assert [type(crash) for crash in crashes] == [DeliveryFailed]


async def test_what_waits_for_a_batch_is_told_of_the_failure_too(bench: Any) -> None:
    producer, broker, _ = bench
    sent = [producer.enqueue("t", b"k", b"%03d" % number * 60, 0, None) for number in range(12)]
    broker.accumulator.fail_all(KafkaError("fatal"))
    await turns(10)
    assert all(future.done() and future.exception() is not None for future in sent)
    assert not producer.pending


async def test_a_record_above_the_limit_is_refused_and_stops_nothing(bench: Any) -> None:
    producer, _, crashes = bench
    with pytest.raises(RecordTooLarge, match="1,000,000"):
        producer.enqueue("t", b"k", b"v" * 1_000_001, 0, None)
    await turns()
    assert not producer.pending
    assert crashes == []
    await producer.flush()
