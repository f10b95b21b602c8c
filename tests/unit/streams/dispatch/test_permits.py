"""Permits in blocks: durable before use, counted by the next owner, no more lost than a block."""

from __future__ import annotations

import pytest

from rowmill.plays.specs import ProviderSpec, Rate
from rowmill.streams.core.receipts import Lease
from rowmill.topics import codec
from rowmill.topics.contracts import LaneEntry
from tests.kit.fake_engine import FakeApp, settle
from tests.unit.streams.dispatch.role import TOOL, Role, leave_running

PACED = ProviderSpec(
    id="p", base_url="http://provider.test", limits=(Rate(calls=10, per_s=60),), concurrency=4
)


def paced_role(calls: int = 10, app: FakeApp | None = None) -> Role:
    limits = (Rate(calls=calls, per_s=60),)
    return Role(PACED.model_copy(update={"limits": limits}), TOOL, app=app)


def record(role: Role) -> LaneEntry:
    return codec.decode(LaneEntry, role.pacing.entries[0]["p"])


def leave_record(role: Role, **fields: object) -> None:
    told = {"epoch": 1, "process": "another", "block": "old", "wall_ms": 1_000_000} | fields
    role.pacing.entries[0]["p"] = codec.encode(LaneEntry.model_validate(told))


async def asked(role: Role, count: int) -> int:
    """Ask so many questions; return how many were sent."""
    for number in range(count):
        role.ask(f"r{number}", f"k{number}")
        await settle(8)
    return len(role.provider.sends)


@pytest.mark.behaviour("G2")
async def test_nothing_leaves_before_its_block_is_durable() -> None:
    app = FakeApp(hold=True)
    role = paced_role(app=app)
    assert await asked(role, 1) == 0
    assert record(role).open == 1
    app.release()
    await settle(20)
    assert len(role.provider.sends) == 1
    (reserved, *_) = [event for event in role.events if event["event"] == "reserved"]
    (sent,) = [event for event in role.events if event["event"] == "sent"]
    assert sent["block"] == reserved["block"]


@pytest.mark.behaviour("G2")
async def test_what_a_former_owner_sent_and_may_have_sent_counts() -> None:
    role = paced_role()
    leave_record(role, sends=[[0, 1], [30_000, 4]], open=3)
    assert await asked(role, 6) == 2
    role.clock.now_ms += 30_100
    assert await asked(role, 10) == 6


@pytest.mark.behaviour("G2")
async def test_what_lies_further_back_than_the_window_does_not_count() -> None:
    role = paced_role()
    leave_record(role, sends=[[60_100, 9]])
    assert await asked(role, 10) == 10


async def test_a_record_of_days_ago_holds_nothing_back() -> None:
    """Wall clocks differ by minutes, not by days."""
    role = paced_role()
    leave_record(role, sends=[[0, 10]], held_ms=50_000, wall_ms=1_000_000 - 400_000)
    assert await asked(role, 3) == 3


async def test_what_may_have_left_since_a_record_counts_however_old_that_is() -> None:
    role = paced_role()
    leave_record(role, open=10, wall_ms=1_000_000 - 400_000)
    assert await asked(role, 3) == 0


async def test_wall_clocks_that_differ_by_minutes_change_nothing() -> None:
    role = paced_role()
    leave_record(role, sends=[[0, 10]], wall_ms=1_000_000 - 290_000)
    assert await asked(role, 3) == 0


@pytest.mark.behaviour("G2")
async def test_a_wait_that_a_former_owner_heard_of_goes_on() -> None:
    role = paced_role()
    leave_record(role, held_ms=5_000)
    assert await asked(role, 1) == 0
    role.clock.now_ms += 5_001
    assert await asked(role, 2) == 2


@pytest.mark.behaviour("G2")
async def test_a_former_owners_calls_keep_their_slots_until_their_leases_end() -> None:
    """Nothing leaves before the partition has been read to the end that it had."""
    role = paced_role()
    leave_record(role)
    leave_running(role, Lease("old", 1, "somebody else", 20_000))
    role.ask("r0", "k")
    await settle(20)
    role.claims._lanes.of(role.record.providers[0]).pacer.limit([(10, 60_000)], 1)
    assert await asked(role, 1) == 0


async def test_blocks_grow_with_the_pace_and_take_an_eighth_of_the_window_at_most() -> None:
    role = paced_role(calls=80)
    await asked(role, 79)
    sizes = [event["permits"] for event in role.events if event["event"] == "reserved"]
    assert sizes[0] <= 2
    assert max(sizes) == 10
    assert len(role.provider.sends) == 79


async def test_lanes_without_windows_write_nothing() -> None:
    role = Role()
    await asked(role, 3)
    assert len(role.provider.sends) == 3
    assert not role.pacing.entries[0]


async def test_an_entry_that_nobody_can_read_ends_the_worker() -> None:
    role = paced_role()
    role.pacing.entries[0]["p"] = b'{"epoch": "?"}'
    role.ask("r0", "k0")
    await settle(20)
    assert role.provider.sends == []
    (failure,) = role.app.failures
    assert "rowmill-dispatch-pacing-changelog: the entry 'p' can't be read" in str(failure)


async def test_a_lane_that_waits_for_a_long_window_says_how_old_its_sends_are_by_now() -> None:
    role = paced_role()
    assert await asked(role, 12) == 10
    written = len(role.pacing.writes)
    lane = role.lanes.of(role.record.providers[0])
    role.clock.now_ms += 30_000
    lane.pump()
    lane.pump()
    assert len(role.pacing.writes) == written + 1
    assert record(role).sends == ((30_000, 10),)


async def test_a_short_window_needs_no_record_while_it_waits() -> None:
    limits = (Rate(calls=3, per_s=1),)
    role = Role(PACED.model_copy(update={"limits": limits}), TOOL)
    await asked(role, 6)
    written = len(role.pacing.writes)
    role.clock.now_ms += 50
    role.lanes.of(role.record.providers[0]).pump()
    assert len(role.pacing.writes) == written


@pytest.mark.behaviour("G2")
async def test_a_record_written_while_a_block_is_on_its_way_counts_that_block() -> None:
    """It comes after the block's own record, and would else be the last word while permits are used."""
    app = FakeApp(hold=True)
    role = paced_role(app=app)
    assert await asked(role, 1) == 0
    role.lanes.of(role.record.providers[0]).hold(0, 0)
    assert len(role.pacing.writes) == 2
    assert record(role).open == 1


async def test_nothing_leaves_where_the_partition_could_not_be_read() -> None:
    role = paced_role()
    leave_record(role)
    role.read_past_error = OSError("no broker")
    assert await asked(role, 2) == 0
    assert role.app.failures == [role.read_past_error]
