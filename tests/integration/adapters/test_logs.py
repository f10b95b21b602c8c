"""Reading whole topics and writing durably, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition

from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord, LogUnreadable, end_offsets
from rowmill.streams.adapters.log_writer import LogUnwritable, LogWriter, RecordTooLarge
from rowmill.topics.catalogue import TopicDefinition
from rowmill.topics.connection import client_options

pytestmark = pytest.mark.broker

TOPIC = TopicDefinition("log", "key", "records of a test")


@asynccontextmanager
async def topic_with(
    settings: Settings, partitions: int = 1, **config: str
) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**client_options(settings))
    await admin.start()
    try:
        await admin.create_topics(
            [
                NewTopic(
                    f"{settings.topic_prefix}{TOPIC.name}",
                    partitions,
                    replication_factor=1,
                    topic_configs={name.replace("_", "."): value for name, value in config.items()},
                )
            ]
        )
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def writer_to(settings: Settings) -> AsyncIterator[LogWriter]:
    writer = LogWriter(settings)
    await writer.start()
    try:
        yield writer
    finally:
        await writer.stop()


async def test_an_empty_topic_is_caught_up_at_once(mill_settings: Settings) -> None:
    async with topic_with(mill_settings, partitions=3):
        found: list[LogRecord] = []
        reader = LogReader(mill_settings, TOPIC, found.append)
        await reader.start()
        await asyncio.wait_for(reader.caught_up(), 10)
        await reader.stop()
        assert found == []
        assert await end_offsets(mill_settings, TOPIC) == {0: 0, 1: 0, 2: 0}


async def test_caught_up_means_that_every_record_below_the_end_was_handed_over(
    mill_settings: Settings,
) -> None:
    async with topic_with(mill_settings, partitions=3), writer_to(mill_settings) as writer:
        for number in range(2_000):
            await writer.send(TOPIC, f"k{number}", b"v", headers=[("h", b"1")])
        await writer.flush()
        found: list[LogRecord] = []
        reader = LogReader(mill_settings, TOPIC, found.append)
        await reader.start()
        await reader.caught_up()
        assert {record.key for record in found} == {f"k{number}" for number in range(2_000)}
        assert {record.partition for record in found} == {0, 1, 2}
        assert found[0].headers == (("h", b"1"),)
        await writer.write(TOPIC, "late", None)
        await reader.caught_up()
        assert (found[-1].key, found[-1].value) == ("late", None)
        await reader.stop()


async def test_reading_begins_where_it_is_told_and_at_the_beginning_elsewhere(
    mill_settings: Settings,
) -> None:
    async with topic_with(mill_settings, partitions=2), writer_to(mill_settings) as writer:
        for number in range(10):
            await writer.write(TOPIC, f"{number}", b"v", partition=number % 2)
        found: list[LogRecord] = []
        reader = LogReader(mill_settings, TOPIC, found.append, from_offsets={0: 3})
        await reader.start()
        await reader.caught_up()
        await reader.stop()
        assert [record.offset for record in found if record.partition == 0] == [3, 4]
        assert [record.offset for record in found if record.partition == 1] == [0, 1, 2, 3, 4]


async def test_records_that_are_gone_are_not_waited_for(mill_settings: Settings) -> None:
    async with topic_with(mill_settings) as admin, writer_to(mill_settings) as writer:
        for number in range(10):
            await writer.write(TOPIC, f"{number}", b"v")
        place = TopicPartition(f"{mill_settings.topic_prefix}{TOPIC.name}", 0)
        await admin.delete_records({place: RecordsToDelete(before_offset=10)})
        found: list[LogRecord] = []
        reader = LogReader(mill_settings, TOPIC, found.append, from_offsets={0: 2})
        await reader.start()
        await asyncio.wait_for(reader.caught_up(), 20)
        await reader.stop()
        assert found == []


async def test_a_missing_topic_is_named_with_what_to_do(mill_settings: Settings) -> None:
    reader = LogReader(mill_settings, TopicDefinition("no.such", "", ""), lambda _record: None)
    with pytest.raises(LogUnreadable, match=r'No topic ".*no\.such".*rowmill topics create'):
        await reader.start()


async def test_what_the_fold_raises_reaches_whoever_waits(mill_settings: Settings) -> None:
    def refuse(_record: LogRecord) -> None:
        raise ValueError("broken fold")

    async with topic_with(mill_settings), writer_to(mill_settings) as writer:
        await writer.write(TOPIC, "k", b"v")
        reader = LogReader(mill_settings, TOPIC, refuse)
        await reader.start()
        with pytest.raises(ValueError, match="broken fold"):
            await reader.caught_up()
        with pytest.raises(ValueError, match="broken fold"):
            await reader.failed
        with pytest.raises(ValueError, match="broken fold"):
            await reader.stop()


async def test_a_record_that_the_broker_refuses_is_never_swallowed(mill_settings: Settings) -> None:
    async with (
        topic_with(mill_settings, max_message_bytes="100000"),
        writer_to(mill_settings) as writer,
    ):
        await writer.send(TOPIC, "fine", b"v")
        await writer.send(TOPIC, "big", b"x" * 200_000)
        with pytest.raises(LogUnwritable, match="larger than the broker takes"):
            await writer.flush()
        with pytest.raises(RecordTooLarge):
            await writer.write(TOPIC, "huge", b"x" * 5_000_000)


async def test_no_broker_is_an_error_that_says_where(mill_settings: Settings) -> None:
    away = mill_settings.model_copy(update={"kafka": "127.0.0.1:1"})
    writer = LogWriter(away)
    with pytest.raises(LogUnwritable, match=r"No Kafka answers at 127\.0\.0\.1:1"):
        await writer.start()
