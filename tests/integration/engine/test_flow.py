"""One consumer feeds all topics of an app: none of them may hold up another."""

from __future__ import annotations

import asyncio

import pytest

from rowmill.settings import Settings
from rowmill.topics.catalogue import PROVIDER_RESULTS, ROWS_INPUT
from tests.integration.engine.stage import Start, committed_now, feed
from tests.kit.until import until_sync

pytestmark = pytest.mark.broker


def test_a_topic_whose_agent_is_stuck_does_not_starve_another(
    settings: Settings, puppet: Start
) -> None:
    """Faust: 10,000 rows that wait for a slot stop the results that would free the slots, for good."""
    rows = [f"r{number}" for number in range(30_000)]
    asyncio.run(feed(settings, ROWS_INPUT, rows))
    worker = puppet(PUPPET_MODE="block").ready()
    until_sync(lambda: worker.delivered(), within_s=30)
    for number in range(3):
        asyncio.run(feed(settings, PROVIDER_RESULTS, [f"answer {number}"]))
        until_sync(lambda: len(worker.delivered("provider.results")) > number, within_s=10)  # noqa: B023
    assert worker.delivered() == [(0, 0)]


def test_a_paused_partition_is_not_fetched_and_goes_on_where_it_stopped(
    settings: Settings, puppet: Start
) -> None:
    worker = puppet(PUPPET_MODE="ack").ready()
    worker.ask("pause", topic="rows.input", partition=0)
    asyncio.run(feed(settings, ROWS_INPUT, ["a", "b", "c"], partition=0))
    asyncio.run(feed(settings, ROWS_INPUT, ["d"], partition=1))
    asyncio.run(feed(settings, PROVIDER_RESULTS, ["answer"], partition=0))
    until_sync(lambda: worker.delivered("provider.results"), within_s=30)
    until_sync(lambda: worker.delivered(), within_s=30)
    assert worker.delivered() == [(1, 0)]
    worker.ask("resume", topic="rows.input", partition=0)
    until_sync(lambda: len(worker.delivered()) == 4, within_s=30)
    assert worker.delivered()[1:] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("without_cython", [False, True])
def test_streams_that_acknowledge_by_themselves_commit_through_the_tracker(
    settings: Settings, puppet: Start, without_cython: bool
) -> None:
    """Faust's Cython iterator writes to the consumer's acked list by itself."""
    asyncio.run(feed(settings, ROWS_INPUT, [f"r{number}" for number in range(50)]))
    flags = {"NO_CYTHON": "1"} if without_cython else {}
    worker = puppet(PUPPET_MODE="stock", **flags).ready()
    until_sync(lambda: len(worker.delivered()) == 50, within_s=30)
    until_sync(lambda: committed_now(settings, ROWS_INPUT) == 50, within_s=30)
