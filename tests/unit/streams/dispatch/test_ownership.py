"""Gate, heartbeats and settlements: what an owner that may not be one any more still does."""

from __future__ import annotations

import asyncio

import pytest

from rowmill.streams.core.receipts import Lease, complete, park
from rowmill.streams.dispatch.heartbeat import Heartbeat, LeaseLost
from rowmill.topics import codec
from rowmill.topics.contracts import Forget, ReceiptEntry, Renewal, Settlement
from tests.kit.fake_engine import delivered, settle
from tests.unit.streams.dispatch.role import BROKEN, FakeClock, Role, leave_running


@pytest.mark.behaviour("G1")
async def test_nothing_leaves_while_the_gate_is_closed() -> None:
    role = Role()
    role.gate_open = False
    role.ask()
    await settle()
    assert role.provider.sends == []
    assert role.table.writes == []
    role.gate_open = True
    await asyncio.sleep(0.15)
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("R3")
async def test_a_gate_that_closed_while_the_lease_was_written_keeps_the_request_back() -> None:
    role = Role()
    role.app.hold = True
    role.ask()
    await settle()
    role.gate_open = False
    role.app.release()
    await settle()
    assert role.provider.sends == []


@pytest.mark.behaviour("R3")
async def test_a_gate_that_closed_while_the_connection_was_made_keeps_the_request_back() -> None:
    """A process may stand still in between: a thawed one sent 25 requests that it had begun."""
    role = Role()
    role.provider.connects = lambda: setattr(role, "gate_open", False)
    role.ask()
    await settle()
    assert role.provider.sends == []
    assert role.stored().attempts == 0
    role.provider.connects = lambda: None
    role.gate_open = True
    await asyncio.sleep(0.15)
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("R6")
async def test_an_answer_behind_a_closed_gate_goes_to_the_owner_and_is_not_written_here() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    asked = role.ask()
    await settle()
    writes = len(role.table.writes)
    role.gate_open = False
    role.provider.gate.set()
    await settle()
    assert len(role.table.writes) == writes
    assert role.results == []
    role.gate_open = True
    await role.feed_back()
    assert role.stored().output == {"n": 1}
    assert role.results[0].output == {"n": 1}
    assert asked.acked
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("R6")
async def test_an_answer_of_a_call_whose_partition_went_away_is_handed_to_its_next_owner() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask()
    await settle()
    role.app.owned.discard(0)
    role.claims.lost({0})
    role.provider.gate.set()
    await settle()
    (value,) = role.app.raw["tool.requests"]
    settlement = codec.decode(Settlement, value)
    assert settlement.receipt.output == {"n": 1}
    assert len(role.claims) == 0


@pytest.mark.behaviour("R6")
async def test_a_late_answer_settles_a_call_that_waits_for_a_foreign_lease_without_a_send() -> None:
    role = Role()
    dead = leave_running(role, Lease("old", 1, "somebody else", 60_000))
    asked = role.ask("r1")
    await settle()
    answer = Settlement(lease="old", receipt=complete(dead, "old", {"late": 1}, 2_000))
    told = delivered(answer)
    role.requests.offer(told)  # type: ignore[arg-type]
    await settle()
    assert role.provider.sends == []
    assert role.results[0].output == {"late": 1}
    assert asked.acked
    assert told.acked


@pytest.mark.behaviour("R6")
async def test_a_late_answer_never_overwrites_a_completed_receipt() -> None:
    role = Role()
    dead = leave_running(role, Lease("old", 1, "me", 60_000))
    role.ask("r1")
    await role.feed_back()
    assert role.stored().output == {"n": 1}
    late = complete(dead, "old", {"late": 1}, 2_000)
    told = delivered(Settlement(lease="old", receipt=late))
    role.requests.offer(told)  # type: ignore[arg-type]
    await settle()
    assert role.stored().output == {"n": 1}
    assert told.acked


@pytest.mark.behaviour("R6")
async def test_an_answer_that_comes_while_the_call_is_sent_again_is_the_one_that_counts() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    dead = leave_running(role, Lease("old", 1, "me", 60_000))
    role.ask("r1")
    await role.feed_back()
    late = complete(dead, "old", {"late": 1}, 2_000)
    role.requests.offer(delivered(Settlement(lease="old", receipt=late)))  # type: ignore[arg-type]
    await settle()
    assert role.results[0].output == {"late": 1}
    role.provider.gate.set()
    await settle()
    assert role.stored().output == {"late": 1}
    assert len(role.results) == 1


@pytest.mark.behaviour("R4")
async def test_a_renewed_foreign_lease_is_waited_for_anew() -> None:
    role = Role()
    leave_running(role, Lease("old", 1, "somebody else", 30))
    role.ask("r1")
    renewal = Renewal(receipt="k", lease="old", duration_ms=60_000)
    role.requests.offer(delivered(renewal))  # type: ignore[arg-type]
    role.clock.now_ms += 100
    await asyncio.sleep(0.1)
    await role.feed_back()
    assert role.provider.sends == []


async def test_a_request_whose_partition_is_being_given_up_is_left_to_its_next_reader() -> None:
    role = Role()
    role.app.owned.discard(0)
    delivery = role.ask("r1")
    await settle()
    assert (len(role.claims), delivery.acked, role.provider.sends) == (0, False, [])


async def test_a_forgotten_receipt_is_bought_anew_and_an_open_one_is_not_forgotten() -> None:
    role = Role()
    role.ask("r1")
    await settle()
    forget = delivered(Forget(receipt="k"))
    role.requests.offer(forget)  # type: ignore[arg-type]
    await settle()
    assert forget.acked
    role.provider.gate = asyncio.Event()
    role.ask("r2")
    await settle()
    assert len(role.provider.sends) == 2
    role.requests.offer(delivered(Forget(receipt="k")))  # type: ignore[arg-type]
    role.provider.gate.set()
    await settle()
    assert role.stored().state == "completed"


@pytest.mark.behaviour("R3")
async def test_a_receipt_found_final_before_the_next_attempt_answers_and_nothing_is_sent() -> None:
    """A call parked; its partition went to a successor that completed it, and came back."""
    role = Role()
    role.provider.gate = asyncio.Event()
    role.provider.answer = lambda number: BROKEN
    role.ask("r1")
    await settle()
    role.app.owned.discard(0)
    role.claims.lost({0})
    role.provider.gate.set()
    await settle()
    assert len(role.claims) == 0, "a call that parks in a lost partition is its next owner's"
    done = complete(leave_running(role, Lease("b", 2, "successor", 20_000)), "b", {"b": 1}, 3_000)
    role.table.entries[0]["k"] = codec.encode(ReceiptEntry(epoch=2, receipt=done))
    role.app.owned.add(0)
    role.app.epoch_number = 3
    again = role.ask("r1")
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert len(role.provider.sends) == 1
    assert role.stored().output == {"b": 1}
    assert role.results[-1].output == {"b": 1}
    assert again.acked


@pytest.mark.behaviour("R6")
async def test_an_answer_writes_over_no_receipt_that_a_successor_completed_meanwhile() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask("r1")
    await settle()
    running = role.stored()
    assert running.lease is not None
    done = complete(running, running.lease.id, {"successor": 1}, 3_000)
    role.app.owned.discard(0)
    role.claims.lost({0})
    role.table.entries[0]["k"] = codec.encode(ReceiptEntry(epoch=2, receipt=done))
    role.app.owned.add(0)
    role.app.epoch_number = 3
    role.claims.came_back({0})
    again = role.ask("r1")
    role.provider.gate.set()
    await role.feed_back()
    assert role.stored().output == {"successor": 1}
    assert role.results[-1].output == {"successor": 1}
    assert again.acked


@pytest.mark.behaviour("R2")
async def test_a_forced_ask_does_not_join_a_stored_parked_purchase() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    dead = leave_running(role, Lease("old", 1, "me", 20_000))
    parked = park(dead, "old", reached=True, uses_attempt=True)
    role.table.entries[0]["k"] = codec.encode(ReceiptEntry(epoch=1, receipt=parked))
    role.ask("r1", force="all", force_token="run:1")
    role.provider.gate.set()
    await settle(20)
    keys = [send.idempotency_key for send in role.provider.sends]
    assert len(keys) == 2
    assert keys[0] != keys[1], "the forced purchase is one of its own"


def lease(duration_ms: int) -> Lease:
    return Lease("l", 1, "me", duration_ms)


@pytest.mark.behaviour("R4")
async def test_a_short_call_needs_no_beat() -> None:
    beats: list[int] = []

    async def renew() -> None:
        beats.append(1)

    heartbeat = Heartbeat(lease(60_000), renew, FakeClock(), 1_000_000)
    assert await heartbeat.keep(asyncio.sleep(0.01, "answer")) == "answer"
    assert beats == []


class LoopClock:
    """The loop's own time."""

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    wall_ms = monotonic_ms


@pytest.mark.behaviour("R4")
async def test_a_long_call_is_renewed_from_the_issued_duration() -> None:
    beats: list[int] = []
    clock = LoopClock()

    async def renew() -> None:
        beats.append(clock.monotonic_ms())

    heartbeat = Heartbeat(lease(100), renew, clock, clock.monotonic_ms())
    await heartbeat.keep(asyncio.sleep(0.4))
    assert len(beats) >= 3
    assert not heartbeat.expired


@pytest.mark.behaviour("R4")
async def test_one_missed_beat_neither_ends_the_call_nor_the_beating() -> None:
    tries: list[int] = []

    async def renew() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("broker away")

    clock = LoopClock()
    heartbeat = Heartbeat(lease(300), renew, clock, clock.monotonic_ms())
    assert await heartbeat.keep(asyncio.sleep(0.7, "kept")) == "kept"
    assert len(tries) >= 3


@pytest.mark.behaviour("R4")
async def test_a_lease_that_no_beat_confirms_is_lost_and_its_call_is_cut_off() -> None:
    cut_off = asyncio.Event()

    async def renew() -> None:
        raise OSError("broker away")

    async def call() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cut_off.set()
            raise

    clock = LoopClock()
    heartbeat = Heartbeat(lease(100), renew, clock, clock.monotonic_ms())
    with pytest.raises(LeaseLost):
        await heartbeat.keep(call())
    assert cut_off.is_set()
    assert heartbeat.expired


async def test_a_stopped_worker_is_cancelled_as_such_and_not_taken_for_a_lost_lease() -> None:
    async def renew() -> None:
        return None

    clock = LoopClock()
    heartbeat = Heartbeat(lease(60_000), renew, clock, clock.monotonic_ms())
    task = asyncio.create_task(heartbeat.keep(asyncio.sleep(60)))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
