"""How long an idempotency key counts: from the purchase's first send, over every owner (Q7, INV11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowmill.streams.core.receipts import Lease, park
from rowmill.topics import codec
from rowmill.topics.contracts import ReceiptEntry
from tests.kit.fake_engine import settle
from tests.kit.until import until
from tests.unit.streams.dispatch.role import TOOL, Role, leave_running

LIFETIME_S = 60
USABLE_S = 57
"""5 % are given away: who takes a call over has another wall clock."""

pytestmark = pytest.mark.behaviour("Q7")


def role_that_finds(reached: bool, *, sent_before_s: float, idempotent: bool = True) -> Role:
    """Return a role whose table holds a call that a dead worker parked."""
    tool = TOOL.model_copy(update={"key_lifetime_s": LIFETIME_S, "idempotent": idempotent})
    role = Role(tool=tool)
    dead = leave_running(role, Lease("old", 1, "other", 20_000))
    sent_ms = role.clock.wall_ms() - round(sent_before_s * 1000)
    dead = replace(dead, first_sent_wall_ms=sent_ms)
    parked = park(dead, "old", reached=reached, uses_attempt=reached)
    role.table.entries[0]["k"] = codec.encode(ReceiptEntry(epoch=1, receipt=parked))
    return role


async def test_a_parked_call_is_not_sent_again_once_its_key_is_too_old() -> None:
    role = role_that_finds(True, sent_before_s=USABLE_S)
    role.ask()
    await settle(20)
    assert role.provider.sends == []
    (told,) = role.results
    assert told.error["kind"] == "outcome unknown"
    assert "too old" in told.error["message"]


async def test_a_parked_call_is_sent_again_while_its_key_counts() -> None:
    role = role_that_finds(True, sent_before_s=USABLE_S - 0.001)
    role.ask()
    await settle(20)
    assert len(role.provider.sends) == 1


@pytest.mark.parametrize(("reached", "idempotent"), [(False, True), (True, False)])
async def test_a_key_that_no_provider_saw_or_honours_has_no_age(
    reached: bool, idempotent: bool
) -> None:
    role = role_that_finds(reached, sent_before_s=10 * LIFETIME_S, idempotent=idempotent)
    role.ask()
    await settle(20)
    assert len(role.provider.sends) == 1


async def test_an_ending_is_told_only_by_a_process_that_surely_owns_the_partition() -> None:
    role = role_that_finds(True, sent_before_s=LIFETIME_S)
    role.app.hold = True
    role.ask()
    await settle(20)
    role.gate_open = False  # it stood still: a successor may own the partition
    role.app.release()
    await settle(20)
    assert role.results == []
    role.gate_open = True
    await until(lambda: len(role.results) == 1, within_s=5)
