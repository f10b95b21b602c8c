"""A follower whose wait runs out is told; the call and everybody else go on."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.fake_engine import settle
from tests.kit.until import until
from tests.unit.streams.dispatch.role import Role

WAIT_S = 0.01


async def in_flight(role: Role) -> asyncio.Event:
    """Leave the first row's call open; returns what lets it be answered."""
    role.provider.gate = asyncio.Event()
    role.ask("r1", wait_s=WAIT_S)
    await settle()
    return role.provider.gate


async def wait_is_over(role: Role) -> None:
    role.clock.now_ms += 20
    await until(lambda: role.results, within_s=5)


@pytest.mark.behaviour("R5")
async def test_a_follower_whose_wait_runs_out_is_told_and_the_receipt_is_untouched() -> None:
    role = Role()
    answered = await in_flight(role)
    asked = role.ask("r2", wait_s=WAIT_S)
    await wait_is_over(role)
    (told,) = role.results
    assert (told.row, told.status, told.error["kind"]) == (
        "r2",
        "failed",
        "still running elsewhere",
    )
    assert (told.sends, told.reused) == (0, False)
    assert asked.acked
    assert role.stored().state == "running"
    answered.set()
    await settle()
    assert [result.row for result in role.results] == ["r2", "r1"]
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("R5")
async def test_who_opened_the_purchase_waits_for_it_without_end() -> None:
    role = Role()
    answered = await in_flight(role)
    role.ask("r2", wait_s=WAIT_S)
    await wait_is_over(role)
    assert {result.row for result in role.results} == {"r2"}, "r1 bought it"
    answered.set()
    await settle()
    assert role.results[-1].row == "r1"


@pytest.mark.behaviour("R5")
async def test_a_call_that_nobody_sends_yet_is_waited_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rowmill.streams.dispatch.waits.AGAIN_S", WAIT_S)
    role = Role()
    role.gate_open = False  # no permit is given: the call has no lease
    role.ask("r1")
    role.ask("r2", wait_s=WAIT_S)
    role.clock.now_ms += 20
    await asyncio.sleep(3 * WAIT_S)  # past its timer
    assert role.results == []
    role.provider.gate = asyncio.Event()
    role.gate_open = True
    await wait_is_over(role)
    assert [result.row for result in role.results] == ["r2"]


@pytest.mark.behaviour("R5")
async def test_asking_again_does_not_wait_anew() -> None:
    role = Role()
    await in_flight(role)
    first = role.ask("r2", wait_s=WAIT_S)
    role.clock.now_ms += 9
    again = role.ask("r2", wait_s=WAIT_S, asked=1)
    assert first.acked
    role.clock.now_ms += 3
    await until(lambda: role.results, within_s=5)
    assert again.acked


@pytest.mark.behaviour("R5")
async def test_a_forced_question_waits_no_longer_for_the_older_call() -> None:
    role = Role()
    answered = await in_flight(role)
    role.ask("r2", force="all", force_token="run:2", wait_s=WAIT_S)
    await wait_is_over(role)
    assert role.results[0].error["kind"] == "still running elsewhere"
    answered.set()
    await settle()
    assert len(role.provider.sends) == 1, "nobody waits for a second purchase"


@pytest.mark.behaviour("R5")
async def test_an_answer_in_time_is_the_only_one() -> None:
    role = Role()
    answered = await in_flight(role)
    role.ask("r2", wait_s=WAIT_S)
    answered.set()
    await settle()
    assert [result.status for result in role.results] == ["completed", "completed"]
    role.ask("r3", wait_s=WAIT_S)
    role.clock.now_ms += 20
    await asyncio.sleep(0.03)  # past every timer: none of them may say anything
    assert [result.status for result in role.results] == ["completed"] * 3
