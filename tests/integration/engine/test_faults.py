"""A broker that goes away, a role that raises, a loop that blocks."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.settings import Settings
from rowmill.streams.engine.watchdog import EXIT_WATCHDOG
from rowmill.topics.catalogue import ROWS_INPUT
from rowmill.topics.creation import create_topics
from tests.integration.engine.stage import PuppetProcess, Start, committed_now, feed
from tests.kit.broker import OwnBroker
from tests.kit.until import until_sync

pytestmark = pytest.mark.broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OwnBroker]:
    with OwnBroker(tmp_path / "broker") as found:
        yield found


def test_a_broker_killed_and_started_again_costs_no_write_and_no_worker(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    """Batches of the idempotent producer wait for the broker; nothing fails, nothing comes twice."""
    settings = Settings(
        kafka=own_broker.bootstrap, home=tmp_path / "home", partitions=2, commit_interval_s=0.1
    )
    asyncio.run(create_topics(settings))
    with PuppetProcess(settings, "w0", PUPPET_MODE="put") as worker:
        worker.ready()
        asyncio.run(feed(settings, ROWS_INPUT, [f"row/a{number}" for number in range(200)]))
        until_sync(lambda: len(worker.of("put")) == 200, within_s=30)
        own_broker.kill_9()
        for number in range(20):
            worker.tell("put", partition=1, key=f"row/b{number}", value=number)
        own_broker.start()
        until_sync(lambda: len(worker.of("put")) == 220, within_s=90)
        assert all(one["error"] is None for one in worker.of("put"))
        asyncio.run(feed(settings, ROWS_INPUT, ["row/c"]))
        until_sync(lambda: committed_now(settings, ROWS_INPUT) == 201, within_s=90)
        assert worker.stop() == 0


def test_a_fault_of_the_code_ends_the_worker_without_a_commit(
    settings: Settings, puppet: Start
) -> None:
    asyncio.run(feed(settings, ROWS_INPUT, ["a"]))
    worker = puppet(PUPPET_MODE="raise")
    assert worker.process.wait(60) == 1
    assert "as told" in worker.log
    assert committed_now(settings, ROWS_INPUT) in (None, 0)


def test_a_blocked_loop_ends_the_process_and_names_the_place(
    settings: Settings, puppet: Start
) -> None:
    """F10."""
    worker = puppet(ROWMILL_LOOP_LAG_MAX_S="2").ready()
    worker.tell("block", seconds=60)
    assert worker.process.wait(30) == EXIT_WATCHDOG
    assert "the loop has been blocked for" in worker.log
    assert "do_block" in worker.log


def test_a_process_that_was_stopped_as_a_whole_is_not_ended(
    settings: Settings, puppet: Start
) -> None:
    """F7: the loop is not to blame for a SIGSTOP."""
    worker = puppet(PUPPET_MODE="ack", ROWMILL_LOOP_LAG_MAX_S="2").ready()
    worker.process.send_signal(signal.SIGSTOP)
    stopped_s = time.monotonic()
    until_sync(lambda: time.monotonic() - stopped_s > 4, within_s=10)
    worker.process.send_signal(signal.SIGCONT)
    asyncio.run(feed(settings, ROWS_INPUT, ["a"]))
    until_sync(lambda: worker.delivered(), within_s=30)
    assert worker.stop() == 0
