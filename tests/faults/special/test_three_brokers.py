"""A cluster of three brokers that loses a leader, or too many replicas: nothing is lost or repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.long import by_hand
from tests.kit.mill import Mill, many_companies, until_calls
from tests.kit.three_brokers import ThreeBrokers
from tests.kit.until import until_sync

ROWS = 1_200

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]


def kill_the_leader(three: ThreeBrokers) -> Callable[[], None]:
    """F12: its partitions get other leaders; it stays away."""
    three.kill_9(three.leader_of("tool.requests"))
    return lambda: None


def freeze_the_leader(three: ThreeBrokers) -> Callable[[], None]:
    """F12: it answers nobody, and believes itself the leader when it goes on."""
    leader = three.leader_of("tool.requests")
    three.freeze(leader)
    return lambda: three.thaw(leader)


def kill_all(three: ThreeBrokers) -> Callable[[], None]:
    """F13: no broker is left."""
    for node in three.nodes:
        three.kill_9(node)

    def start() -> None:
        for node in three.nodes:
            three.start(node)

    return start


@pytest.mark.behaviour("R3")
@pytest.mark.parametrize(
    "trouble",
    [
        kill_the_leader,
        pytest.param(freeze_the_leader, marks=by_hand),
        pytest.param(kill_all, marks=by_hand),
    ],
)
def test_a_cluster_that_loses_brokers_costs_no_row_and_no_second_call(
    trouble: Callable[[ThreeBrokers], Callable[[], None]], tmp_path: Path
) -> None:
    with ThreeBrokers(tmp_path) as three, mill_on(three, tmp_path) as mill:
        mill.up()
        run = mill.start_run(many_companies(tmp_path / "in.csv", ROWS), "lost")
        until_calls(mill, ROWS // 3)
        heal = trouble(three)
        if trouble is kill_all:
            until_stands(mill)
            heal()
        until_calls(mill, mill.provider.calls + 50)
        if trouble is not kill_all:
            heal()
        code, report = run.done(within_s=300)
        assert (code, report["completed"], report["pending"]) == (0, ROWS, 0)
        assert set(Counter(row["Symbol"] for row in run.rows()).values()) == {1}
        assert mill.provider.repeated_keys() == {}


@pytest.mark.behaviour("R3")
def test_below_the_least_in_sync_replicas_nothing_is_sent_until_a_lease_can_be_kept(
    tmp_path: Path,
) -> None:
    """F14: every partition wants three in-sync replicas, and one node is gone."""
    with (
        ThreeBrokers(tmp_path, min_insync_replicas="3") as three,
        mill_on(three, tmp_path) as mill,
    ):
        mill.up()
        run = mill.start_run(many_companies(tmp_path / "in.csv", ROWS), "refused")
        until_calls(mill, ROWS // 3)
        three.kill_9(three.nodes[2])
        until_stands(mill)
        assert run.process.poll() is None
        three.start(three.nodes[2])
        code, report = run.done(within_s=300)
        assert (code, report["completed"], report["pending"]) == (0, ROWS, 0)
        assert mill.provider.repeated_keys() == {}


def mill_on(three: ThreeBrokers, tmp_path: Path) -> Mill:
    home = tmp_path / "mill"
    home.mkdir()
    return Mill(home, latency_ms=30, kafka=three.bootstrap, replication=3)


def until_stands(mill: Mill) -> None:
    """Return once no call was sent for a while: what is lost without its broker waits."""
    seen = [-1]

    def stands() -> bool:
        before, seen[0] = seen[0], mill.provider.calls
        return before == seen[0]

    until_sync(stands, within_s=60, every_s=1.0)
