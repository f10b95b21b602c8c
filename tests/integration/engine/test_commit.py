"""Offsets: what is committed is durable, what is open is read again."""

from __future__ import annotations

import asyncio

import pytest

from rowmill.settings import Settings
from rowmill.topics.catalogue import ROWS_COMPLETED, ROWS_INPUT
from tests.integration.engine.stage import Start, committed_now, feed
from tests.kit.until import until_sync

pytestmark = pytest.mark.broker

ROWS = [f"r{number}" for number in range(10)]


def test_a_fresh_group_begins_at_the_beginning_and_commits_nothing_while_its_head_is_open(
    settings: Settings, puppet: Start
) -> None:
    """10-14 acknowledged while 0-9 are in work: Faust commits 15 here (606)."""
    asyncio.run(feed(settings, ROWS_INPUT, ROWS + [f"s{number}" for number in range(5)]))
    worker = puppet().ready()
    until_sync(lambda: len(worker.delivered()) == 15, within_s=30)
    assert worker.delivered() == [(0, offset) for offset in range(15)]
    for offset in range(10, 15):
        worker.ask("ack", topic="rows.input", partition=0, offset=offset)
    # Something behind it that is committed shows that commits went by.
    asyncio.run(feed(settings, ROWS_INPUT, ["other"], partition=1))
    until_sync(lambda: (1, 0) in worker.delivered(), within_s=30)
    worker.ask("ack", topic="rows.input", partition=1, offset=0)
    until_sync(lambda: committed_now(settings, ROWS_INPUT, 1) == 1, within_s=30)
    assert committed_now(settings, ROWS_INPUT, 0) in (None, 0)


def test_kill_9_after_acks_out_of_order_delivers_exactly_from_the_first_open_offset(
    settings: Settings, puppet: Start
) -> None:
    """O24: committed stops at the first open offset; after a death everything from it comes again."""
    asyncio.run(feed(settings, ROWS_INPUT, ROWS))
    worker = puppet().ready()
    until_sync(lambda: len(worker.delivered()) == 10, within_s=30)
    for offset in (0, 1, 2, 4, 5, 9):
        worker.ask("ack", topic="rows.input", partition=0, offset=offset)
    until_sync(lambda: committed_now(settings, ROWS_INPUT) == 3, within_s=30)
    worker.kill_9()

    again = puppet().ready()
    until_sync(lambda: len(again.delivered()) == 7, within_s=30)
    assert again.delivered() == [(0, offset) for offset in range(3, 10)]
    for offset in range(3, 10):
        again.ask("ack", topic="rows.input", partition=0, offset=offset)
    until_sync(lambda: committed_now(settings, ROWS_INPUT) == 10, within_s=30)


def test_a_planned_stop_commits_what_was_acknowledged_last(
    settings: Settings, puppet: Start
) -> None:
    asyncio.run(feed(settings, ROWS_INPUT, ROWS))
    worker = puppet().ready()
    until_sync(lambda: len(worker.delivered()) == 10, within_s=30)
    for offset in range(6):
        worker.ask("ack", topic="rows.input", partition=0, offset=offset)
    assert worker.stop() == 0
    assert worker.of("lost")
    assert committed_now(settings, ROWS_INPUT) == 6


def test_a_delivery_that_failed_stops_the_worker_before_its_commit(
    settings: Settings, puppet: Start
) -> None:
    """The broker refuses the record (MESSAGE_TOO_LARGE): Faust's flush never looks at that."""
    asyncio.run(_limit(settings, 2_000))
    asyncio.run(feed(settings, ROWS_INPUT, ROWS))
    worker = puppet(PUPPET_MODE="hold").ready()
    until_sync(lambda: len(worker.delivered()) == 10, within_s=30)
    worker.tell("produce", topic="rows.completed", key="big", size=50_000, partition=0)
    for offset in range(10):
        worker.tell("ack", topic="rows.input", partition=0, offset=offset)
    assert worker.process.wait(60) == 3
    assert committed_now(settings, ROWS_INPUT) in (None, 0)
    assert "not delivered" in worker.log


async def _limit(settings: Settings, size_bytes: int) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    from rowmill.topics.connection import client_options

    admin = AIOKafkaAdminClient(**client_options(settings))
    await admin.start()
    name = settings.topic_prefix + ROWS_COMPLETED.name
    await admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": str(size_bytes)})]
    )
    await admin.close()
