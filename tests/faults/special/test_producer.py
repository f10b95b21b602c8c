"""F20: a record that the broker refuses for good ends the worker; nothing is committed after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from rowmill.settings import Settings
from rowmill.topics.catalogue import RECEIPTS_CHANGELOG
from rowmill.topics.connection import client_options
from tests.faults.asking import (
    answers,
    asks_nothing_again,
    completed,
    dispatch,
    numbered,
    share,
    write_rows,
)
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill

ROWS = 300
OPEN = 20

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]


@pytest.mark.behaviour("R3")
def test_a_refused_record_ends_the_worker_and_its_successor_goes_on(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    worker = dispatch(mill, 0)
    worker.ready()
    ledger.hold()
    rows = write_rows(tmp_path / "in.csv", numbered(ROWS))
    run = mill.start_run(rows, "refused", "--concurrency", str(OPEN))
    ledger.until_open(OPEN)
    largest_record(mill.settings, 10)
    ledger.release()  # the answers come, and no changelog takes them
    assert worker.wait(within_s=60) == 3
    assert "were not delivered" in worker.logged("worker_failed")[0]
    largest_record(mill.settings, 2 << 20)
    share(dispatch(mill, 0))
    completed(run, ROWS)
    assert max(len(calls) for calls in ledger.by_key().values()) <= 2
    assert len(ledger.calls) <= ROWS + OPEN, "only calls that were open may be sent again"
    asks_nothing_again(mill, rows, "again", answers(run), len(ledger.calls))


def largest_record(settings: Settings, size: int) -> None:
    """Let the receipts' changelog take batches of `size` bytes at most."""

    async def alter() -> None:
        admin = AIOKafkaAdminClient(**client_options(settings))
        await admin.start()
        try:
            name = f"{settings.topic_prefix}{RECEIPTS_CHANGELOG.name}"
            config = RECEIPTS_CHANGELOG.settings() | {"max.message.bytes": str(size)}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, config)])
        finally:
            await admin.close()

    asyncio.run(alter())
