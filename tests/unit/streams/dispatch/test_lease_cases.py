"""Cases O22 and O23: a call longer than its lease, the worker that came back, one lost heartbeat.

Where the loop's own time runs, a second of the case is played as 40 ms: leases
long enough for a loop that is kept waiting.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.core.receipts import Failure, complete, fail
from rowmill.topics import codec
from rowmill.topics.contracts import ReceiptEntry, Renewal, Settlement
from tests.kit.fake_engine import FakeDelivery, settle
from tests.kit.until import until
from tests.unit.streams.dispatch.role import Role

INPUTS = Path(__file__).parents[3] / "inputs"
MS_PER_CASE_S = 40


class RunningClock:
    """The loop's own time."""

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    wall_ms = monotonic_ms


def running_role(lease_ms: int) -> Role:
    """A role on the loop's own time."""
    role = Role(lease_ms=lease_ms)
    role.caller._clock = RunningClock()
    role.claims._clock = RunningClock()
    return role


async def takes(role: Role, milliseconds: float) -> None:
    """Let the provider answer after that long."""
    role.provider.gate = asyncio.Event()
    asyncio.get_running_loop().call_later(milliseconds / 1000, role.provider.gate.set)


@pytest.mark.behaviour("R4")
async def test_o22a_a_call_that_outlives_its_lease_three_times_is_one_call() -> None:
    case = json.loads((INPUTS / "O22_lease.json").read_text())["a"]
    role = running_role(case["ttl_s"] * MS_PER_CASE_S * 2)
    await takes(role, case["provider_takes_s"] * MS_PER_CASE_S * 2)
    asked = role.ask()
    await until(lambda: asked.acked, within_s=30)
    assert len(role.provider.sends) == 1
    assert role.stored().output == {"n": 1}
    stored = [codec.decode(ReceiptEntry, value).receipt for _, value in role.table.writes]
    running = [one.lease.id for one in stored if one.lease is not None]
    assert len(running) >= 4, "renewed all along"
    assert len(set(running)) == 1, "one lease, one attempt"


@pytest.mark.behaviour("R6")
@pytest.mark.parametrize("end", ["success", "failure"])
async def test_o22b_the_worker_that_came_back_changes_nothing(end: str) -> None:
    """A sends at 0 s, stands still from 1 to 12 s and has its answer then; B, of the same name, took
    over after 5 s and has completed."""
    ttl_ms = json.loads((INPUTS / "O22_lease.json").read_text())["b"]["ttl_s"] * 1_000
    a = Role(lease_ms=ttl_ms, instance="a")
    a.provider.gate = asyncio.Event()
    a.provider.answer = lambda number: ending_of(end)
    a.ask()
    await settle()
    (sent_by_a,) = a.provider.sends
    running = a.stored()

    b = Role(lease_ms=ttl_ms, instance="b", table=a.table)
    b.app.epoch_number = 2
    b.provider.answer = lambda number: Answered("value B", 9, 1.0)
    b.clock.now_ms += ttl_ms - 5
    asked = b.ask()
    await b.feed_back()
    assert b.provider.sends == [], "the lease of A is waited out in full, on the clock of B"
    b.clock.now_ms += 6
    await b.feed_back()
    assert [send.idempotency_key for send in b.provider.sends] == [sent_by_a.idempotency_key]
    assert asked.acked
    settled_by_b = b.table.entries[0]["k"]

    a.clock.now_ms += 12_000
    a.gate_open = False  # its last heartbeat is older than the session
    call = a.claims._open["k"]
    await a.caller._renew(call)
    a.provider.gate.set()
    await settle(10)
    told = a.app.raw["tool.requests"]
    assert told, "what A knows goes to the owner"
    for value in [*told, *as_if_told(running)]:
        b.requests.offer(FakeDelivery(value))  # type: ignore[arg-type]
        await settle()
    assert b.table.entries[0]["k"] == settled_by_b, "neither beat nor ending of A is taken"
    assert b.stored().output == "value B"
    assert [result.output for result in b.results] == ["value B"], "the row counts once"
    assert a.results == []
    assert len(b.provider.sends) == 1


def ending_of(end: str) -> Outcome:
    if end == "success":
        return Answered("value A", 9, 1.0)
    return Refused(
        FailureKind.PERMANENT, "no such company", retryable=False, maybe_booked=False, reached=True
    )


def as_if_told(running: Any) -> list[bytes]:
    """Every word that a former owner under that lease could say."""
    lease = running.lease
    reason = Failure(FailureKind.PERMANENT, "no such company")
    failure = fail(running, lease.id, reason, 12_000, reached=True)
    words = (
        Renewal(receipt="k", lease=lease.id, duration_ms=lease.duration_ms),
        Settlement(lease=lease.id, receipt=complete(running, lease.id, "value A", 12_000)),
        Settlement(lease=lease.id, receipt=failure),
    )
    return [codec.encode(word) for word in words]


async def test_o22b_a_beat_of_the_former_owner_does_not_lengthen_its_successors_lease() -> None:
    a = Role(lease_ms=50, instance="a")
    a.provider.gate = asyncio.Event()
    a.ask()
    await settle()
    beat = Renewal(receipt="k", lease=a.stored().lease.id, duration_ms=60_000)  # type: ignore[union-attr]
    b = Role(lease_ms=50, instance="b", table=a.table)
    b.app.epoch_number = 2
    b.provider.gate = asyncio.Event()
    b.ask()
    b.clock.now_ms += 51
    await asyncio.sleep(0.06)
    await b.feed_back()
    (call,) = b.claims._open.values()
    assert call.sending
    until = call.foreign_until_ms
    b.requests.offer(FakeDelivery(codec.encode(beat)))  # type: ignore[arg-type]
    assert call.foreign_until_ms == until
    assert call.receipt.lease is not None
    assert call.receipt.lease.id != beat.lease


@pytest.mark.behaviour("R4")
async def test_o23_one_lost_heartbeat_neither_ends_the_call_nor_goes_unsaid() -> None:
    case = json.loads((INPUTS / "O23_heartbeat.json").read_text())
    beats = iter(case["beats"])
    role = running_role(case["ttl_s"] * MS_PER_CASE_S)
    write = role.store.put

    def put(partition: int, receipt: Any) -> asyncio.Future[None]:
        if receipt.state == "running" and role.provider.sends and next(beats, "ok") == "timeout":
            return asyncio.get_running_loop().create_future()  # the broker never answers
        return write(partition, receipt)

    role.store.put = put  # type: ignore[method-assign]
    # Ours beat at half of the lease: as many beats need a longer call than the case's.
    lasts_ms = case["provider_takes_s"] * MS_PER_CASE_S * 2.5
    await takes(role, lasts_ms)
    with capture_logs() as logs:
        asked = role.ask()
        await until(lambda: asked.acked, within_s=30)
    assert len(role.provider.sends) == 1
    assert role.stored().output == {"n": 1}
    assert [line["event"] for line in logs].count("heartbeat_missed") == 1
    assert "lease_lost" not in [line["event"] for line in logs]
