"""Members come, go and come back: nothing is lost, and an older assignment is over."""

from __future__ import annotations

import asyncio
import time

import pytest

from rowmill.settings import Settings
from rowmill.topics.catalogue import ROWS_CHANGELOG, ROWS_INPUT
from tests.integration.engine.stage import Start, committed_now, feed, read
from tests.kit.until import until_sync

pytestmark = pytest.mark.broker


def test_members_that_join_and_leave_under_load_lose_no_row(
    settings: Settings, puppet: Start
) -> None:
    """596: Faust loses what is delivered between the seek and the resume after a rebalance."""
    worker = puppet("w0", PUPPET_MODE="put").ready()
    keys: list[set[str]] = [set(), set()]

    def feed_some(name: str) -> None:
        for partition in (0, 1):
            more = [f"row/{name}{number}" for number in range(1_500)]
            keys[partition].update(more)
            asyncio.run(feed(settings, ROWS_INPUT, more, partition=partition))

    feed_some("a")
    second = puppet("w1", PUPPET_MODE="put")
    feed_some("b")
    second.ready()
    until_sync(lambda: len(worker.of("ready")) == 2, within_s=60)
    feed_some("c")
    until_sync(lambda: second.of("put"), within_s=60)
    assert second.stop() == 0
    feed_some("d")
    until_sync(lambda: len(worker.of("ready")) == 3, within_s=60)
    for partition in (0, 1):
        until_sync(lambda: committed_now(settings, ROWS_INPUT, partition) == 6_000, within_s=60)  # noqa: B023
        written = {
            record.key.decode() for record in asyncio.run(read(settings, ROWS_CHANGELOG, partition))
        }
        assert written - {"!epoch"} == keys[partition]


def test_a_delivery_of_an_older_assignment_acknowledges_nothing(
    settings: Settings, puppet: Start
) -> None:
    """Eager rebalances: the same partitions come back, and their open records with them."""
    asyncio.run(feed(settings, ROWS_INPUT, ["a"], partition=0))
    asyncio.run(feed(settings, ROWS_INPUT, ["b"], partition=1))
    worker = puppet("w0").ready()
    until_sync(lambda: len(worker.delivered()) == 2, within_s=30)
    first = worker.of("delivered")[0]["assignment"]
    second = puppet("w1").ready()
    second.stop()
    # Both partitions were revoked and came back: delivered once more, in a later assignment.
    until_sync(
        lambda: (
            {(one["key"]) for one in worker.of("delivered") if one["assignment"] > first + 1}
            == {"a", "b"}
        ),
        within_s=60,
    )
    assert [one["owned"] for one in worker.of("lost")] == [[]] * len(worker.of("lost"))
    for partition in (0, 1):
        place = worker.tell(
            "ack", topic="rows.input", partition=partition, offset=0, assignment=first
        )
        assert not worker.wait("ack", after=place)["live"]
    last = max(one["assignment"] for one in worker.of("delivered"))
    worker.tell("ack", topic="rows.input", partition=1, offset=0, assignment=last)
    until_sync(lambda: committed_now(settings, ROWS_INPUT, 1) == 1, within_s=30)
    assert committed_now(settings, ROWS_INPUT, 0) in (None, 0)


def test_a_worker_that_stops_leaves_its_partitions_at_once(
    settings: Settings, puppet: Start
) -> None:
    """A static member sends no LeaveGroup by itself: they would wait for the session to run out."""
    patient = {"ROWMILL_SESSION_TIMEOUT_S": "30"}
    first = puppet("w0", **patient).ready()
    second = puppet("w1", **patient).ready()
    until_sync(lambda: second.of("ready")[-1]["partitions"] in ([0], [1]), within_s=60)
    assert first.stop() == 0
    left_s = time.monotonic()
    until_sync(lambda: second.of("ready")[-1]["partitions"] == [0, 1], within_s=60)
    assert time.monotonic() - left_s < 20


def test_a_worker_killed_and_started_again_keeps_its_partitions(
    settings: Settings, puppet: Start
) -> None:
    """Static membership: no other member sees a rebalance, no session has to run out."""
    patient = {"ROWMILL_SESSION_TIMEOUT_S": "30"}
    first = puppet("w0", **patient).ready()
    second = puppet("w1", **patient).ready()
    until_sync(lambda: first.of("ready")[-1]["partitions"] in ([0], [1]), within_s=60)
    mine = first.of("ready")[-1]
    rebalances = len(second.of("ready"))
    first.kill_9()
    again = puppet("w0", **patient).ready(within_s=25)
    found = again.of("ready")[0]
    assert found["partitions"] == mine["partitions"]
    assert [int(epoch) for epoch in found["epochs"].values()] == [
        int(epoch) + 1 for epoch in mine["epochs"].values()
    ]
    assert again.of("READY")[0]["instance"] == first.of("READY")[0]["instance"]
    assert len(second.of("ready")) == rebalances


def test_a_standby_has_the_entries_before_it_takes_over(settings: Settings, puppet: Start) -> None:
    one = {"PUPPET_STANDBYS": "1"}
    first = puppet("w0", **one).ready()
    second = puppet("w1", **one).ready()
    until_sync(lambda: first.of("ready")[-1]["partitions"] in ([0], [1]), within_s=60)
    mine = first.of("ready")[-1]["partitions"][0]
    for number in range(500):
        first.tell("put", partition=mine, key=f"row/{number}", value=number)
    first.wait("put", key="row/499")
    # The epoch and 500 entries: the copy has them before the owner goes.
    until_sync(lambda: (second.ask("standby")["offsets"].get(str(mine)) or 0) >= 501, within_s=30)
    first.kill_9()
    until_sync(lambda: second.of("ready")[-1]["partitions"] == [0, 1], within_s=60)
    assert len(second.ask("scan", partition=mine)["entries"]) == 501
    recovered = [line for line in second.log.splitlines() if "tables_recovered" in line][-1]
    assert int(recovered.split("records=")[1].split()[0]) < 10
