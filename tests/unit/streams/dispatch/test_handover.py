"""Between two owners, or two ownerships of one process: each answer is found before a call is sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rowmill.streams.core.outcomes import Answered, Outcome
from rowmill.streams.core.receipts import Lease, complete
from rowmill.streams.dispatch.heartbeat import Heartbeat
from rowmill.streams.engine.tables import NotOwned
from rowmill.topics import codec
from rowmill.topics.contracts import ReceiptEntry, Renewal, Settlement
from tests.kit.fake_engine import delivered, settle
from tests.unit.streams.dispatch.role import (
    BROKEN,
    PROVIDER,
    FakeClock,
    Role,
    leave_running,
)


def lose(role: Role) -> None:
    role.app.owned.discard(0)
    role.claims.lost({0})
    role.mail.lost({0})


def own_again(role: Role) -> None:
    role.app.owned.add(0)
    role.app.epoch_number += 1


@pytest.mark.behaviour("R6")
async def test_an_answer_that_came_between_two_ownerships_of_one_process_is_not_bought_again() -> (
    None
):
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask()
    await settle()
    lose(role)
    role.provider.gate.set()
    await settle()
    own_again(role)
    again = role.ask()
    await role.feed_back()
    assert len(role.provider.sends) == 1
    assert role.results[0].output == {"n": 1}
    assert again.acked


async def test_an_interrupted_takeover_waits_no_longer() -> None:
    before = asyncio.all_tasks()
    role = Role()
    leave_running(role, Lease("old", 1, "me", 20_000))
    role.ask()
    await settle()
    assert asyncio.all_tasks() - before, "it waits for its own barrier"
    lose(role)
    await settle()
    assert asyncio.all_tasks() == before


@pytest.mark.behaviour("R6")
async def test_nothing_is_sent_while_a_late_answer_becomes_durable() -> None:
    role = Role(PROVIDER.model_copy(update={"concurrency": 1}))
    role.provider.gate = asyncio.Event()
    role.ask("r0", "other")
    await settle()
    dead = leave_running(role, Lease("old", 1, "me", 60_000))
    asked = role.ask("r1")
    await role.feed_back()
    assert len(role.lanes) == 1, "taken over, and waiting for a slot"
    role.app.hold = True
    late = complete(dead, "old", {"late": 1}, 2_000)
    role.requests.offer(delivered(Settlement(lease="old", receipt=late)))  # type: ignore[arg-type]
    role.provider.gate.set()
    await settle()
    role.app._waiting.pop().set_result(None)  # the other call is settled: its slot is free
    await settle(20)
    assert len(role.provider.sends) == 1
    assert not asked.acked
    role.app.release()
    await settle(20)
    assert len(role.provider.sends) == 1
    assert role.stored().output == {"late": 1}
    assert asked.acked


@pytest.mark.behaviour("R6")
async def test_an_own_answer_never_overwrites_a_late_one_that_is_becoming_durable() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    dead = leave_running(role, Lease("old", 1, "me", 60_000))
    role.ask("r1")
    await role.feed_back()
    role.app.hold = True
    late = complete(dead, "old", {"late": 1}, 2_000)
    role.requests.offer(delivered(Settlement(lease="old", receipt=late)))  # type: ignore[arg-type]
    role.provider.gate.set()
    await settle(20)
    role.app.release()
    await settle(20)
    assert role.stored().output == {"late": 1}
    assert [result.output for result in role.results] == [{"late": 1}]


@pytest.mark.behaviour("R2")
async def test_a_late_answer_is_told_only_once_it_is_durable() -> None:
    role = Role()
    dead = leave_running(role, Lease("old", 1, "me", 60_000))
    role.app.hold = True
    late = complete(dead, "old", {"late": 1}, 2_000)
    role.requests.offer(delivered(Settlement(lease="old", receipt=late)))  # type: ignore[arg-type]
    asked = role.ask("r1")
    await settle()
    assert role.results == []
    role.app.release()
    await settle()
    assert role.results[0].output == {"late": 1}
    assert asked.acked
    assert role.provider.sends == []


@pytest.mark.behaviour("R6")
async def test_an_answer_whose_writing_outlived_the_ownership_is_handed_over() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask()
    await settle()
    role.app.hold = True
    role.provider.gate.set()
    await settle()
    lose(role)
    role.app.hold = False
    for write in role.app._waiting:
        write.set_exception(NotOwned("receipts", 0))
    await settle()
    (value,) = role.app.raw["tool.requests"]
    assert codec.decode(Settlement, value).receipt.output == {"n": 1}
    assert role.results == []


@pytest.mark.behaviour("R6")
async def test_an_answer_is_told_only_by_who_is_the_owner_once_it_is_written() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    asked = role.ask()
    await settle()
    role.app.hold = True
    role.provider.gate.set()
    await settle()
    role.gate_open = False
    role.app.release()
    await settle()
    assert role.results == [], "a successor may have settled it otherwise"
    role.gate_open = True
    await role.feed_back()
    assert [result.output for result in role.results] == [{"n": 1}]
    assert asked.acked
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("R4")
async def test_a_lease_is_not_written_behind_a_closed_gate_but_told_to_the_owner() -> None:
    role = Role(lease_ms=100)
    role.provider.gate = asyncio.Event()
    role.ask()
    await settle()
    writes = len(role.table.writes)
    role.gate_open = False
    await asyncio.sleep(0.08)
    assert len(role.table.writes) == writes
    assert {codec.decode(Renewal, value).receipt for value in role.app.raw["tool.requests"]} == {
        "k"
    }


@pytest.mark.behaviour("Q6")
async def test_a_parked_call_is_taken_up_by_the_next_owner_without_a_lease_or_a_death() -> None:
    slow = PROVIDER.model_copy(
        update={"retry": PROVIDER.retry.model_copy(update={"backoff_s": 60, "backoff_s_max": 60})}
    )
    role = Role(slow)
    role.provider.answer = lambda number: BROKEN
    role.ask()
    await settle(10)
    parked = role.stored()
    assert (parked.state, parked.attempts, parked.lease) == ("queued", 1, None)
    successor = Role(slow, table=role.table)
    successor.provider.answer = lambda number: Answered("found", 5, 1.0)
    successor.ask()
    await settle(10)
    (send,) = successor.provider.sends
    assert send.idempotency_key == role.provider.sends[0].idempotency_key
    assert (successor.stored().deaths, successor.stored().sends) == (0, 2)


@pytest.mark.behaviour("R4")
async def test_a_beat_that_is_due_as_the_answer_comes_writes_nothing() -> None:
    beats: list[int] = []

    async def renew() -> None:
        beats.append(1)

    heartbeat = Heartbeat(Lease("l", 1, "me", 60_000), renew, FakeClock(), 1_000_000)

    async def call() -> str:
        heartbeat._due()
        return "answer"

    assert await heartbeat.keep(call()) == "answer"
    await settle()
    assert beats == []


async def taken_further(role: Role, outcome: Outcome) -> None:
    """Have a call in flight whose partition goes, is sent by another owner, and comes back."""
    role.provider.gate = asyncio.Event()
    role.provider.answer = lambda number: outcome
    role.ask()
    await settle()
    sent = role.stored()
    lose(role)
    theirs = Lease("theirs", 2, "somebody else", 20_000)
    role.table.entries[0]["k"] = codec.encode(
        ReceiptEntry(epoch=2, receipt=replace(sent, lease=theirs))
    )
    own_again(role)
    role.claims.came_back({0})
    role.provider.gate.set()
    await role.feed_back()


@pytest.mark.behaviour("R4")
async def test_a_call_that_another_owner_sends_is_not_tried_again_beside_it() -> None:
    role = Role()
    await taken_further(role, BROKEN)
    assert len(role.provider.sends) == 1, "theirs is in flight: a second send would be ours"
    assert role.stored().lease == Lease("theirs", 2, "somebody else", 20_000)


@pytest.mark.behaviour("R6")
async def test_the_answer_of_a_call_that_another_owner_sends_is_not_thrown_away() -> None:
    role = Role()
    await taken_further(role, Answered({"n": 7}, 7, 1.0))
    assert role.stored().output == {"n": 7}
    role.ask("r2")
    await settle()
    assert role.results[-1].output == {"n": 7}
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("Q6")
async def test_a_call_not_sent_because_its_partition_goes_is_no_death_for_the_next_owner() -> None:
    role = Role()
    role.app.hold = True
    role.ask()
    await settle()
    assert role.stored().state == "running"
    leaving = set(role.app.owned)
    role.claims._ownership = role.caller._ownership = replace(
        role.caller._ownership, owns=lambda partition: partition not in leaving
    )
    role.app.release()
    await settle()
    assert role.provider.sends == []
    assert (role.stored().state, role.stored().sends) == ("queued", 0)
    successor = Role(table=role.table)
    successor.ask()
    await settle(10)
    assert (successor.stored().deaths, successor.stored().sends) == (0, 1)


@pytest.mark.behaviour("Q6")
async def test_a_call_that_waits_for_its_connection_parks_at_once_as_its_partition_goes() -> None:
    """A connection may take seconds: what it parks then comes after the last flush."""
    role = Role()
    connected = asyncio.Event()
    role.provider.connecting = connected
    role.ask()
    await settle()
    role.caller.lost({1})
    assert role.stored().state == "running", "another partition went"
    role.caller.lost({0})
    assert (role.stored().state, role.stored().sends) == ("queued", 0)
    lose(role)
    connected.set()
    await settle(10)
    assert role.provider.sends == []
    successor = Role(table=role.table)
    successor.table.app.owned.add(0)
    successor.ask()
    await settle(10)
    assert (successor.stored().deaths, successor.stored().sends) == (0, 1)


@pytest.mark.behaviour("Q6")
async def test_a_request_that_left_is_not_parked_as_its_partition_goes() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask()
    await settle()
    assert len(role.provider.sends) == 1
    role.caller.lost({0})
    assert role.stored().state == "running"
