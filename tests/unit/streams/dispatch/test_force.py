"""Forced asks: never part of an older open purchase, once per command, spend counted once."""

from __future__ import annotations

import asyncio

import pytest

from rowmill.streams.core.receipts import Lease
from tests.kit.fake_engine import settle
from tests.unit.streams.dispatch.role import Role, leave_running


@pytest.mark.behaviour("R2")
async def test_a_forced_ask_waits_for_an_older_open_call_and_buys_anew() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    plain = role.ask("r1")
    forced = role.ask("r2", force="all", force_token="run:1")
    same_command = role.ask("r3", force="all", force_token="run:1")
    await settle()
    assert len(role.provider.sends) == 1
    assert role.claims.waits(forced)  # type: ignore[arg-type]
    role.provider.gate.set()
    await settle(20)
    assert {result.row: result.output["n"] for result in role.results} == {
        "r1": 1, "r2": 2, "r3": 2,
    }  # fmt: skip
    assert len({send.idempotency_key for send in role.provider.sends}) == 2
    assert all(delivery.acked for delivery in (plain, forced, same_command))


@pytest.mark.behaviour("R2")
async def test_a_retry_of_failures_takes_the_answer_that_an_open_call_brings() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask("r1")
    role.ask("r2", force="failed", force_token="run:1")
    await settle()
    role.provider.gate.set()
    await settle(20)
    assert len(role.provider.sends) == 1
    assert [(result.row, result.reused) for result in role.results] == [("r1", False), ("r2", True)]


async def test_a_forced_ask_lets_a_dead_owners_purchase_end_first() -> None:
    role = Role()
    dead = leave_running(role, Lease("old", 1, "me", 20_000))
    role.ask("r2", force="all", force_token="run:1")
    await role.feed_back()
    first, second = role.provider.sends
    assert first.idempotency_key != second.idempotency_key
    assert role.stored().purchase != dead.purchase
    (result,) = role.results
    assert result.output == {"n": 2}


async def test_a_forced_ask_of_a_lost_partition_is_left_to_the_next_owner() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    role.ask("r1")
    forced = role.ask("r2", force="all", force_token="run:1")
    await settle()
    forced.live = False
    role.provider.gate.set()
    await settle(20)
    assert len(role.provider.sends) == 1
    assert not forced.acked


async def test_a_row_that_runs_again_is_not_charged_for_what_it_bought_before() -> None:
    role = Role()
    role.ask("r1")
    await settle()
    role.ask("r1", life=2, command=1, force="failed", force_token="run:1")
    await settle()
    bought, again = role.results
    assert (bought.sends, bought.cost, bought.reused) == (1, 0.5, False)
    assert (again.sends, again.cost, again.reused) == (0, 0, True)


async def test_a_replay_of_the_same_command_still_counts_its_own_purchase() -> None:
    role = Role()
    role.ask("r1", command=1)
    await settle()
    role.ask("r1", life=2, command=1)
    await settle()
    assert [result.sends for result in role.results] == [1, 1]
