"""Calls that may not start any more: a run's limit is reached, a provider's credits are out."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rowmill.plays.specs import ProviderSpec
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.topics import codec
from rowmill.topics.contracts import DrawEntry, RunOptions
from tests.kit.fake_engine import settle
from tests.unit.streams.dispatch.role import PROVIDER, TOOL, Role, run_record

NO_CREDITS = Refused(
    FailureKind.OUT_OF_CREDITS, "402 no credits", retryable=False, maybe_booked=False, reached=True,
    status_code=402,
)  # fmt: skip


def tell_run(role: Role, offset: int, run: str = "run", life: int = 1, **options: Any) -> None:
    record = run_record([PROVIDER], [TOOL], run).model_copy(
        update={
            "life": life,
            "claim": "c" if life == 1 else f"c{life}",
            "options": RunOptions(**options),
        }
    )
    held = role.runs.apply(run, codec.encode(record), offset)
    assert held is not None
    role.claims.starts.run_changed(held.run, held.life)


def limited(**options: Any) -> Role:
    role = Role()
    tell_run(role, 1, **options)
    return role


def told(role: Role) -> list[str]:
    return [result.status for result in role.results]


@pytest.mark.behaviour("Q5")
@pytest.mark.parametrize("options", [{"max_calls": 3}, {"budget": 1.7}])
async def test_a_run_buys_as_much_as_its_limit_says_and_not_one_more(
    options: dict[str, Any],
) -> None:
    role = limited(**options)  # a call costs 0.5
    for number in range(8):
        role.ask(f"r{number}", f"k{number}")
    await role.feed_back()
    assert len(role.provider.sends) == 3
    assert sorted(told(role)) == ["completed"] * 3 + ["withheld"] * 5
    withheld = next(result for result in role.results if result.status == "withheld")
    assert "--" in withheld.error["message"], "it names the option to change"
    assert len(role.claims) == 0


@pytest.mark.behaviour("Q5")
async def test_what_is_answered_already_is_free_also_at_the_limit() -> None:
    role = Role()
    role.ask("r1", "k")
    await settle()
    tell_run(role, 1, "second", max_calls=0)
    asked = role.ask("r1", "k", run="second")
    await role.feed_back()
    assert told(role) == ["completed", "completed"]
    assert role.results[-1].reused
    assert asked.acked


@pytest.mark.behaviour("Q5")
async def test_a_limit_outlives_its_owner_and_draws_once_for_a_purchase_that_was_lost() -> None:
    role = limited(max_calls=2)
    role.app.hold = True
    role.ask("r1", "k1")
    await settle()
    role.app.release()
    await role.feed_back()
    successor = Role(app=role.app)
    successor.limits._store._table = cast(Any, role.limits_table)
    tell_run(successor, 1, max_calls=2)
    for number in (1, 2, 3):
        successor.ask(f"r{number}", f"k{number}")
    await successor.feed_back()
    drawn = role.limits_table.entries[0]
    assert len(drawn) == 2, "k1 was drawn for by the owner before, under the same id"
    assert len(successor.provider.sends) == 2
    assert all(codec.decode(DrawEntry, value).cost == 0.5 for value in drawn.values())


@pytest.mark.behaviour("Q5")
async def test_nothing_is_bought_before_its_draw_is_durable() -> None:
    role = limited(max_calls=2)
    role.ask("r1", "k1")
    role.app.hold = True
    await role.feed_back()
    assert role.provider.sends == []
    role.app.release()
    await role.feed_back()
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("Q5")
async def test_another_run_that_waits_for_a_withheld_call_buys_it_itself() -> None:
    role = limited(max_calls=0)
    role.runs.apply("other", codec.encode(run_record([PROVIDER], [TOOL], "other")), 5)
    role.ask("r1", "k")
    role.ask("r1", "k", run="other")
    await role.feed_back()
    assert [(result.run, result.status) for result in role.results] == [
        ("run", "withheld"), ("other", "completed"),
    ]  # fmt: skip
    assert len(role.provider.sends) == 1


@pytest.mark.behaviour("Q5")
async def test_a_higher_limit_in_the_next_life_lets_it_go_on() -> None:
    role = limited(max_calls=1)
    for number in range(3):
        role.ask(f"r{number}", f"k{number}")
    await role.feed_back()
    tell_run(role, 2, life=2, max_calls=3)
    for number in range(3):
        role.ask(f"r{number}", f"k{number}", life=2)
    await role.feed_back()
    assert len(role.provider.sends) == 3
    assert [result.status for result in role.results if result.life == 2] == ["completed"] * 3


def credits(role: Role, count: int) -> None:
    def answer(number: int) -> Outcome:
        return Answered({"n": number}, 7, 1.0) if number <= count else NO_CREDITS

    role.provider.answer = answer


@pytest.mark.behaviour("Q5")
async def test_without_credits_one_call_fails_and_the_others_wait() -> None:
    role = Role(PROVIDER.model_copy(update={"concurrency": 4}))
    credits(role, 2)
    role.provider.gate = asyncio.Event()
    for number in range(10):
        role.ask(f"r{number}", f"k{number}")
    await settle()
    role.provider.gate.set()
    await settle(20)
    assert sorted(told(role)) == ["completed"] * 2 + ["failed"] + ["withheld"] * 7
    assert len(role.provider.sends) == 4 + 2, "those in flight, and the slots of the answered two"
    (failed,) = [result for result in role.results if result.status == "failed"]
    assert failed.error["kind"] == "out of credits"
    role.ask("r11", "k11")
    await settle()
    assert told(role)[-1] == "withheld"
    assert len(role.provider.sends) == 6


@pytest.mark.behaviour("Q5")
async def test_without_credits_at_one_provider_another_goes_on() -> None:
    role = Role()
    credits(role, 0)
    role.ask("r1", "k1")
    await settle()
    elsewhere = ProviderSpec(id="p2", base_url="http://other.test")
    tool = TOOL.model_copy(update={"id": "t2", "provider": "p2"})
    record = run_record([PROVIDER, elsewhere], [TOOL, tool])
    role.runs.apply("run", codec.encode(record), 1)
    credits(role, 9)
    role.ask("r2", "k2", tool="t2")
    role.ask("r3", "k3")
    await settle(10)
    assert sorted(told(role)) == ["completed", "failed", "withheld"]


@pytest.mark.behaviour("Q5")
async def test_a_rerun_asks_what_failed_and_the_next_life_what_waited_under_the_keys_it_had() -> (
    None
):
    role = Role(PROVIDER.model_copy(update={"concurrency": 2}))
    credits(role, 0)
    role.provider.gate = asyncio.Event()
    for number in range(3):
        role.ask(f"r{number}", f"k{number}")
    await settle()
    role.provider.gate.set()
    await settle(20)
    assert sorted(told(role)) == ["failed", "withheld", "withheld"]
    parked = role.provider.sends[1].idempotency_key
    credits(role, 9)
    tell_run(role, 1, life=2)
    role.runs.apply("other", codec.encode(run_record([PROVIDER], [TOOL], "other")), 5)
    role.ask("r0", "k0", run="other")  # a rerun: in its own run the row has ended
    for number in (1, 2):
        role.ask(f"r{number}", f"k{number}", life=2)
    await settle(20)
    assert told(role)[3:] == ["completed"] * 3
    assert parked in {send.idempotency_key for send in role.provider.sends[2:]}
