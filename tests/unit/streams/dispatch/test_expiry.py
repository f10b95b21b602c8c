"""Old receipts are deleted by their owner; what is open, young or somebody else's stays."""

from __future__ import annotations

import asyncio

from rowmill.streams.core.receipts import Lease
from rowmill.streams.dispatch.expiry import Expiry
from rowmill.streams.dispatch.owner import Ownership
from tests.kit.fake_engine import settle
from tests.unit.streams.dispatch.role import Role, leave_running

TTL_MS = 86_400_000


def expiry(role: Role, *, gate: bool = True, ttl_ms: int = TTL_MS) -> Expiry:
    own = Ownership("me", role.app.epoch, role.app.owns, lambda: gate, lambda _: 0)
    return Expiry(role.store, role.claims, own, role.clock, ttl_ms)


async def test_a_receipt_goes_once_it_is_too_old_and_is_bought_anew_then() -> None:
    role = Role()
    role.ask("r1")
    await settle()
    role.clock.now_ms += TTL_MS
    assert await expiry(role).sweep([0]) == 0
    assert role.store.get(0, "k") is not None
    role.clock.now_ms += 1
    assert await expiry(role).sweep([0]) == 1
    assert role.store.get(0, "k") is None
    role.ask("r2")
    await settle()
    assert len({send.idempotency_key for send in role.provider.sends}) == 2


async def test_open_calls_stay_however_old() -> None:
    role = Role()
    leave_running(role, Lease("old", 1, "somebody else", 20_000))
    role.provider.gate = asyncio.Event()
    role.ask("r1", "mine")
    await settle()
    role.clock.now_ms += 2 * TTL_MS
    assert await expiry(role).sweep([0]) == 0
    assert role.stored().state == "running"
    assert role.stored("mine").state == "running"


async def test_a_receipt_that_is_bought_again_meanwhile_stays() -> None:
    role = Role()
    role.ask("r1")
    await settle()
    role.clock.now_ms += 2 * TTL_MS
    role.provider.gate = asyncio.Event()
    role.ask("r2", force="all", force_token="run:2")
    await settle()
    assert await expiry(role).sweep([0]) == 0
    role.provider.gate.set()
    await settle()
    assert await expiry(role).sweep([0]) == 0, "it settled just now"


async def test_who_may_not_be_the_owner_any_more_deletes_nothing() -> None:
    role = Role()
    role.ask("r1")
    await settle()
    role.clock.now_ms += 2 * TTL_MS
    assert await expiry(role, gate=False).sweep([0]) == 0
    role.app.owned.clear()
    assert await expiry(role).sweep([0]) == 0


async def test_many_go_in_chunks_each_durable_before_the_next() -> None:
    role = Role()
    for number in range(2_500):
        role.ask("r1", f"k{number}")
    while len(role.results) < 2_500:
        await settle()
    role.clock.now_ms += 2 * TTL_MS
    role.app.hold = True
    sweeping = asyncio.create_task(expiry(role).sweep([0]))
    await settle(100)
    assert len(role.table.entries[0]) == 1_500
    role.app.hold = False
    role.app.release()
    assert await sweeping == 2_500
    assert role.table.entries[0] == {}


async def test_without_a_time_to_live_nobody_looks() -> None:
    role = Role()
    await asyncio.wait_for(expiry(role, ttl_ms=0).keep_sweeping([0], asyncio.Event()), 5)
