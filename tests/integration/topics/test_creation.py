"""Topics are made as the catalogue says, once, and others are refused before anything runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from rowmill.settings import Settings
from rowmill.topics.catalogue import CHANGELOGS, DEAD_LETTER, ROWS_INPUT, RUNS
from rowmill.topics.connection import BrokerUnreachable, admin, client_options
from rowmill.topics.creation import (
    ALL_TOPICS,
    TopicMismatch,
    TopicRefused,
    TopicsMissing,
    check_topics,
    create_topics,
    full_name,
    list_topics,
)
from tests.kit.broker import free_port
from tests.kit.until import until

pytestmark = pytest.mark.broker


async def _make(settings: Settings, name: str, partitions: int, **config: Any) -> None:
    async with admin(settings) as client:
        await client.create_topics([NewTopic(name, partitions, 1, topic_configs=config)])

    async def is_there() -> bool:  # the controller answers before the broker shows it
        return any(topic.name == name and topic.partitions for topic in await list_topics(settings))

    await until(is_there, within_s=20)


async def test_create_makes_every_topic_once(mill_settings: Settings) -> None:
    made = await create_topics(mill_settings)
    assert made == [full_name(mill_settings, definition) for definition in ALL_TOPICS]
    assert await create_topics(mill_settings) == []
    await check_topics(mill_settings)


async def test_concurrent_creators_agree(mill_settings: Settings) -> None:
    made = await asyncio.gather(*(create_topics(mill_settings) for _ in range(4)))
    assert {name for names in made for name in names} == {
        full_name(mill_settings, definition) for definition in ALL_TOPICS
    }
    await check_topics(mill_settings)


async def test_topics_carry_their_configuration(mill_settings: Settings) -> None:
    await create_topics(mill_settings)
    for definition in (ROWS_INPUT, RUNS, DEAD_LETTER, *CHANGELOGS):
        name = full_name(mill_settings, definition)
        resource = ConfigResource(ConfigResourceType.TOPIC, name, None)
        async with admin(mill_settings) as client:
            (answer,) = await client.describe_configs([resource])
        found = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert {key: found[key] for key in definition.settings()} == definition.settings()


async def test_changelogs_have_the_prefix_and_the_data_topics_partitions(
    mill_settings: Settings,
) -> None:
    settings = mill_settings.model_copy(update={"partitions": 3})
    await create_topics(settings)
    partitions = {topic.name: topic.partitions for topic in await list_topics(settings)}
    prefix = settings.topic_prefix
    assert partitions[f"{prefix}rowmill-rows-rows-changelog"] == 3
    assert partitions[f"{prefix}rowmill-dispatch-receipts-changelog"] == 3
    assert partitions[f"{prefix}rows.input"] == 3
    assert partitions[f"{prefix}runs"] == 1


async def test_another_partition_count_is_refused_before_anything_is_made(
    mill_settings: Settings,
) -> None:
    name = full_name(mill_settings, ROWS_INPUT)
    await _make(mill_settings, name, 6)
    has = rf"has 6 partitions, expected {mill_settings.partitions}\."
    expected = rf"Topic {name} {has} Nothing was started\. .*PARTITIONS=6"
    for act in (check_topics, create_topics):
        with pytest.raises(TopicMismatch, match=expected) as caught:
            await act(mill_settings)
        assert caught.value.exit_code == 3
    assert [topic.name for topic in await list_topics(mill_settings) if topic.partitions] == [name]


async def test_a_changelog_that_would_be_deleted_is_refused(mill_settings: Settings) -> None:
    name = full_name(mill_settings, CHANGELOGS[0])
    await _make(mill_settings, name, mill_settings.partitions, **{"cleanup.policy": "delete"})
    with pytest.raises(TopicMismatch, match="cleanup.policy=delete, expected compact"):
        await create_topics(mill_settings)


async def test_missing_topics_are_named(mill_settings: Settings) -> None:
    with pytest.raises(TopicsMissing, match=r"rows\.input.*rowmill topics create"):
        await check_topics(mill_settings)


async def test_list_counts_records(mill_settings: Settings) -> None:
    await create_topics(mill_settings)
    name = full_name(mill_settings, ROWS_INPUT)
    async with AIOKafkaProducer(**client_options(mill_settings)) as producer:
        for number in range(5):
            await producer.send_and_wait(name, b"{}", partition=number % mill_settings.partitions)
    listing = {topic.name: topic for topic in await list_topics(mill_settings)}
    assert (listing[name].records, listing[name].key) == (5, "row id")
    assert listing[full_name(mill_settings, RUNS)].records == 0


async def test_too_many_replicas_are_explained(mill_settings: Settings) -> None:
    settings = mill_settings.model_copy(update={"replication": 30})
    with pytest.raises(TopicRefused, match="ROWMILL_REPLICATION=30 is more than it has brokers"):
        await create_topics(settings)


async def test_a_broker_that_is_not_there_is_named() -> None:
    port = free_port()
    settings = Settings(kafka=f"127.0.0.1:{port}")
    with pytest.raises(BrokerUnreachable, match=rf"127.0.0.1:{port}: refused.*ROWMILL_KAFKA"):
        await check_topics(settings)
