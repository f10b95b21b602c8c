"""Make the topics of the catalogue, and refuse to run on topics that are not as needed.

The number of partitions is part of the data: a row's or receipt's partition follows from it. So a
topic is never altered here, only created or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    InvalidReplicationFactorError,
    KafkaError,
    LeaderNotAvailableError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from rowmill.errors import InfrastructureError
from rowmill.settings import Settings
from rowmill.topics.catalogue import CATALOGUE, CHANGELOGS, TopicDefinition
from rowmill.topics.connection import admin, client_options

VISIBLE_TIMEOUT_S = 15
"""A created topic has a leader in under 1 s; a cluster under load takes longer."""

ALL_TOPICS: tuple[TopicDefinition, ...] = CATALOGUE + CHANGELOGS
"""Every topic of a mill: the catalogue and the tables' changelogs."""


class TopicMismatch(InfrastructureError):
    """A topic exists with other partitions or another cleanup than its records need."""

    def __init__(self, topic: str, found: str, expected: str, advice: str) -> None:
        super().__init__(
            f"Topic {topic} has {found}, expected {expected}. Nothing was started. {advice}"
        )


class TopicsMissing(InfrastructureError):
    """Topics that the workers need are not there."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(
            f"Missing topics: {', '.join(names)}. Nothing was started. "
            f"Create them: rowmill topics create."
        )


class TopicRefused(InfrastructureError):
    """The cluster would not create or show a topic."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"Kafka refused topic {topic}: {reason}")


@dataclass(frozen=True, slots=True)
class TopicListing:
    """One topic as `rowmill topics list` shows it. `partitions` 0: it does not exist yet."""

    name: str
    key: str
    partitions: int
    retention_ms: int | None
    cleanup: str
    flows: str
    records: int


def create(settings: Settings) -> list[str]:
    """Create what is missing, outside a loop; see `create_topics`."""
    return asyncio.run(create_topics(settings))


def check(settings: Settings) -> None:
    """Refuse a cluster whose topics are not as needed, outside a loop; see `check_topics`."""
    asyncio.run(check_topics(settings))


def listed(settings: Settings) -> list[TopicListing]:
    """Return what the cluster has of every topic, outside a loop; see `list_topics`."""
    return asyncio.run(list_topics(settings))


def full_name(settings: Settings, definition: TopicDefinition) -> str:
    """Return the topic's name in the cluster: the prefix before it."""
    return settings.topic_prefix + definition.name


def wanted_partitions(settings: Settings, definition: TopicDefinition) -> int:
    """Return how many partitions the topic must have."""
    return definition.partitions or settings.partitions


async def create_topics(settings: Settings) -> list[str]:
    """Create the topics that are missing; return their names once each has a leader.

    Raises: TopicMismatch before anything is created, TopicRefused, BrokerUnreachable.
    """
    async with admin(settings) as client:
        missing = await _missing(client, settings)
        if missing:
            await _create(client, settings, missing)
            await _visible(client, {full_name(settings, definition) for definition in missing})
            await _groups_possible(client, settings)
        return [full_name(settings, definition) for definition in missing]


async def check_topics(settings: Settings) -> None:
    """Return if every topic exists with its partitions and cleanup.

    Raises: TopicMismatch, TopicsMissing, TopicRefused, BrokerUnreachable.
    """
    async with admin(settings) as client:
        if missing := await _missing(client, settings):
            raise TopicsMissing([full_name(settings, definition) for definition in missing])


async def list_topics(settings: Settings) -> list[TopicListing]:
    """Return every topic with what the cluster has of it, in the catalogue's order.

    `records` counts offsets from the log's start to its end: compaction leaves gaps, so it is an
    upper bound there. Raises: TopicRefused, BrokerUnreachable.
    """
    async with admin(settings) as client:
        partitions = await _partitions(client, _names(settings))
    records = await _records(settings, partitions)
    return [
        TopicListing(
            name=(name := full_name(settings, definition)),
            key=definition.key,
            partitions=partitions.get(name, 0),
            retention_ms=definition.retention_ms,
            cleanup=definition.cleanup,
            flows=definition.flows,
            records=records.get(name, 0),
        )
        for definition in ALL_TOPICS
    ]


def _names(settings: Settings) -> list[str]:
    return [full_name(settings, definition) for definition in ALL_TOPICS]


async def _missing(client: AIOKafkaAdminClient, settings: Settings) -> list[TopicDefinition]:
    """Return what does not exist. Raises: TopicMismatch where what exists can't be used."""
    found = await _partitions(client, _names(settings))
    existing = [item for item in ALL_TOPICS if full_name(settings, item) in found]
    for definition in existing:
        name, wanted = full_name(settings, definition), wanted_partitions(settings, definition)
        if found[name] != wanted:
            advice = _partitions_advice(definition, found[name])
            raise TopicMismatch(name, _count(found[name]), str(wanted), advice)
    cleanups = await _cleanups(client, [full_name(settings, item) for item in existing])
    for definition in existing:
        name = full_name(settings, definition)
        if name in cleanups and cleanups[name] != definition.cleanup:
            advice = f"Set it back: cleanup.policy={definition.cleanup} on {name}."
            cleanup = f"cleanup.policy={cleanups[name]}"
            raise TopicMismatch(name, cleanup, definition.cleanup, advice)
    return [item for item in ALL_TOPICS if item not in existing]


def _partitions_advice(definition: TopicDefinition, found: int) -> str:
    if definition.partitions is None:
        use_it = f"Run with ROWMILL_PARTITIONS={found} if every data topic has {found}, or use "
    else:
        use_it = "Use "
    return use_it + "other topics with ROWMILL_TOPIC_PREFIX=PREFIX."


def _count(partitions: int) -> str:
    return f"{partitions} partition" + ("" if partitions == 1 else "s")


async def _partitions(client: AIOKafkaAdminClient, names: list[str]) -> dict[str, int]:
    """Return the partition count of each topic that exists. Raises: TopicRefused."""
    found = {}
    for topic in await client.describe_topics(names):
        error = for_code(topic["error_code"])
        if error is UnknownTopicOrPartitionError:
            continue
        if error not in (NoError, LeaderNotAvailableError):
            raise TopicRefused(topic["topic"], _reason(error, "DESCRIBE"))
        found[topic["topic"]] = len(topic["partitions"])
    return found


async def _cleanups(client: AIOKafkaAdminClient, names: list[str]) -> dict[str, str]:
    """Return `cleanup.policy` of each topic whose configuration we may read."""
    if not names:
        return {}
    wanted = {"cleanup.policy": ""}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, wanted) for name in names]
    found = {}
    for answer in await client.describe_configs(resources):
        for error_code, _, _, name, entries in answer.resources:
            if error_code == 0:
                found[name] = next(iter(entries))[1]
    return found


async def _create(
    client: AIOKafkaAdminClient, settings: Settings, missing: Iterable[TopicDefinition]
) -> None:
    """Raises: TopicRefused, for the first topic that the cluster would not create."""
    wanted = [
        NewTopic(
            full_name(settings, definition),
            wanted_partitions(settings, definition),
            settings.replication,
            topic_configs=definition.settings(),
        )
        for definition in missing
    ]
    answer = await client.create_topics(wanted)
    for name, code, *detail in answer.topic_errors:
        error = for_code(code)
        if error in (NoError, TopicAlreadyExistsError):  # another process was faster: same topics
            continue
        if error is InvalidReplicationFactorError:
            advice = f"ROWMILL_REPLICATION={settings.replication} is more than it has brokers"
            raise TopicRefused(name, advice)
        raise TopicRefused(name, _reason(error, "CREATE", *detail))


async def _visible(client: AIOKafkaAdminClient, names: set[str]) -> None:
    """Wait until every topic has a leader in each partition."""
    async with asyncio.timeout(VISIBLE_TIMEOUT_S):
        while not await _led(client, names):
            await asyncio.sleep(0.05)


async def _led(client: AIOKafkaAdminClient, names: set[str]) -> bool:
    topics = await client.describe_topics(sorted(names))
    return all(
        topic["error_code"] == 0 and all(part["leader"] >= 0 for part in topic["partitions"])
        for topic in topics
    )


async def _groups_possible(client: AIOKafkaAdminClient, settings: Settings) -> None:
    """Let a new cluster make its topic of group offsets now.

    It does so at the first question for a coordinator; the workers' consumers would each log
    errors and wait until it is there.
    """
    async with asyncio.timeout(VISIBLE_TIMEOUT_S):
        while True:
            try:
                await client.find_coordinator(f"{settings.topic_prefix}rowmill-rows")
            except GroupCoordinatorNotAvailableError:
                await asyncio.sleep(0.05)
            except KafkaError:  # not ours to ask: the workers' own users are
                return
            else:
                return


async def _records(settings: Settings, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return, for each topic, the offsets between its start and its end."""
    every = [TopicPartition(name, p) for name, count in partitions.items() for p in range(count)]
    if not every:
        return {}
    consumer = AIOKafkaConsumer(**client_options(settings))
    await consumer.start()
    try:
        starts = await consumer.beginning_offsets(every)
        ends = await consumer.end_offsets(every)
    finally:
        await consumer.stop()
    counts = dict.fromkeys(partitions, 0)
    for place in every:
        counts[place.topic] += ends[place] - starts[place]
    return counts


def _reason(error: type[KafkaError], operation: str, detail: str | None = None) -> str:
    """Say what to do about a broker's error code."""
    if error in (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
        return (
            f"this user may not {operation} it. Grant {operation} on the topics with this prefix, "
            f"or have an operator run: rowmill topics create"
        )
    return f"{detail or error.description or error.__name__} ({error.message})"
