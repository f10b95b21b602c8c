"""What lies in a topic, read as it is: for tests that look at what an owner wrote, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from rowmill.settings import Settings
from rowmill.streams.engine.recovery import epoch_of
from rowmill.topics.catalogue import TopicDefinition
from rowmill.topics.connection import client_options

Ends = dict[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """One record. `value`: decoded JSON. `epoch`: of a changelog's record, else 0."""

    partition: int
    offset: int
    key: str
    value: Any
    epoch: int


def end_of(settings: Settings, topic: TopicDefinition) -> Ends:
    """Return the offset after the last record of each partition."""
    return asyncio.run(_ends(settings, topic))


def read(settings: Settings, topic: TopicDefinition, begin: Mapping[int, int] = {}) -> list[Seen]:
    """Return all records from `begin` (their beginning unless named) to the ends of now."""
    return asyncio.run(_read(settings, topic, begin))


def epochs_fell(records: list[Seen]) -> list[Seen]:
    """Return the records that came after one of a higher epoch in their partition."""
    highest: dict[int, int] = {}
    fallen = []
    for record in records:
        if record.epoch < highest.setdefault(record.partition, record.epoch):
            fallen.append(record)
        highest[record.partition] = max(highest[record.partition], record.epoch)
    return fallen


async def _ends(settings: Settings, topic: TopicDefinition) -> Ends:
    consumer, tps = await _consumer(settings, topic)
    try:
        return {tp.partition: end for tp, end in (await consumer.end_offsets(tps)).items()}
    finally:
        await consumer.stop()


async def _read(settings: Settings, topic: TopicDefinition, begin: Mapping[int, int]) -> list[Seen]:
    consumer, tps = await _consumer(settings, topic)
    found: list[Seen] = []
    try:
        ends = await consumer.end_offsets(tps)
        firsts = await consumer.beginning_offsets(tps)
        for tp in tps:
            consumer.seek(tp, begin.get(tp.partition, firsts[tp]))
        async with asyncio.timeout(60):
            while [tp for tp in tps if await consumer.position(tp) < ends[tp]]:
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    found += [_seen(record) for record in records if record.offset < ends[tp]]
    finally:
        await consumer.stop()
    return found


async def _consumer(
    settings: Settings, topic: TopicDefinition
) -> tuple[AIOKafkaConsumer, list[TopicPartition]]:
    consumer = AIOKafkaConsumer(
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **client_options(settings),
    )
    await consumer.start()
    name = f"{settings.topic_prefix}{topic.name}"
    tps = [TopicPartition(name, one) for one in range(topic.partitions or settings.partitions)]
    consumer.assign(tps)
    return consumer, tps


def _seen(record: Any) -> Seen:
    value = None if record.value is None else msgspec.json.decode(record.value)
    key = (record.key or b"").decode()
    return Seen(record.partition, record.offset, key, value, epoch_of(record.headers))


def compact(settings: Settings, topic: TopicDefinition) -> None:
    """Let the broker compact a topic as soon as it can: what lies in it now, once more is written."""
    asyncio.run(_compact(settings, topic))


def compacted(settings: Settings, topic: TopicDefinition, ends: Ends) -> bool:
    """Whether each key below `ends` is left with one record."""
    below = [
        (record.partition, record.key)
        for record in read(settings, topic)
        if record.offset < ends[record.partition]
    ]
    return len(below) == len(set(below))


async def _compact(settings: Settings, topic: TopicDefinition) -> None:
    admin = AIOKafkaAdminClient(**client_options(settings))
    await admin.start()
    try:
        at_once = {
            "min.compaction.lag.ms": "0",
            "min.cleanable.dirty.ratio": "0.0",
            "segment.ms": "100",
            "delete.retention.ms": "100",
        }
        name = f"{settings.topic_prefix}{topic.name}"
        # This replaces all of a topic's configuration.
        config = topic.settings() | at_once
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, config)])
    finally:
        await admin.close()


def produce(
    settings: Settings, topic: TopicDefinition, values: Sequence[bytes | None]
) -> list[tuple[int, int]]:
    """Write records as they are to partition 0; return partition and offset of each."""

    async def write() -> list[tuple[int, int]]:
        producer = AIOKafkaProducer(**client_options(settings))
        await producer.start()
        try:
            name = f"{settings.topic_prefix}{topic.name}"
            sent = [
                await producer.send_and_wait(name, value, key=b"bad", partition=0)
                for value in values
            ]
        finally:
            await producer.stop()
        return [(one.partition, one.offset) for one in sent]

    return asyncio.run(write())


def committed(settings: Settings, role: str, topic: TopicDefinition) -> Ends:
    """Return what a role's group has committed of a topic, without partitions it has not."""

    async def look() -> Ends:
        admin = AIOKafkaAdminClient(**client_options(settings))
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets(
                f"{settings.topic_prefix}rowmill-{role}"
            )
        finally:
            await admin.close()
        name = f"{settings.topic_prefix}{topic.name}"
        return {tp.partition: one.offset for tp, one in found.items() if tp.topic == name}

    return asyncio.run(look())


def repeat(settings: Settings, topics: Sequence[TopicDefinition], begin: dict[str, Ends]) -> None:
    """Append a copy of each record since `begin` to its own partition, and move `begin` past both."""

    async def copy(producer: AIOKafkaProducer, topic: TopicDefinition) -> None:
        consumer, tps = await _consumer(settings, topic)
        places = begin.setdefault(topic.name, {})
        try:
            ends = await consumer.end_offsets(tps)
            for tp in tps:
                consumer.seek(tp, places.get(tp.partition, 0))
            waiting = []
            while [tp for tp in tps if await consumer.position(tp) < ends[tp]]:
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    waiting += [
                        await producer.send(
                            tp.topic, one.value, one.key, tp.partition, headers=list(one.headers)
                        )
                        for one in records
                        if one.offset < ends[tp]
                    ]
            for sent in waiting:
                at = await sent
                places[at.partition] = max(places.get(at.partition, 0), at.offset + 1)
        finally:
            await consumer.stop()

    async def copy_all() -> None:
        producer = AIOKafkaProducer(**client_options(settings))
        await producer.start()
        try:
            for topic in topics:
                await copy(producer, topic)
        finally:
            await producer.stop()

    asyncio.run(copy_all())
