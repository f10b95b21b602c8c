"""An operator's wish to forget: settled receipts go, open calls are left alone."""

from __future__ import annotations

import asyncio

import pytest

from rowmill.streams.core.receipts import Lease, park
from rowmill.topics import codec
from rowmill.topics.contracts import Forget, ReceiptEntry
from tests.kit.fake_engine import FakeDelivery, delivered, settle
from tests.unit.streams.dispatch.role import Role, leave_running


def forget(role: Role) -> FakeDelivery:
    wish = delivered(Forget(receipt="k"))
    role.requests.offer(wish)  # type: ignore[arg-type]
    return wish


async def test_a_forgotten_receipt_is_bought_anew() -> None:
    role = Role()
    role.ask("r1")
    await settle()
    wish = forget(role)
    await settle()
    assert wish.acked
    assert role.store.get(0, "k") is None
    role.ask("r2")
    await settle()
    assert len({send.idempotency_key for send in role.provider.sends}) == 2


@pytest.mark.behaviour("Q7")
async def test_an_open_call_is_not_forgotten() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask("r1")
    await settle()
    wish = forget(role)
    await settle()
    assert wish.acked
    assert role.stored().state == "running"


@pytest.mark.behaviour("Q7")
async def test_a_call_of_a_former_owner_is_not_forgotten() -> None:
    role = Role()
    leave_running(role, Lease("old", 1, "somebody else", 20_000))
    wish = forget(role)
    await settle()
    assert wish.acked
    assert role.stored().state == "running"


@pytest.mark.behaviour("Q7")
async def test_a_call_that_a_former_owner_left_for_later_is_not_forgotten() -> None:
    """It was sent, and its outcome may not be known: a new purchase would be a second one."""
    role = Role()
    running = leave_running(role, Lease("old", 1, "somebody else", 20_000))
    parked = park(running, "old", reached=True, uses_attempt=True)
    role.table.entries[0]["k"] = codec.encode(ReceiptEntry(epoch=1, receipt=parked))
    wish = forget(role)
    await settle()
    assert wish.acked
    assert role.stored().state == "queued"


async def test_what_is_not_there_is_forgotten_all_the_same() -> None:
    role = Role()
    wish = forget(role)
    await settle()
    assert wish.acked
