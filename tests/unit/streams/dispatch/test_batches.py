"""Batches in the dispatch role: gathered, durable, sent as one, settled one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rowmill.plays.specs import BatchSpec, ProviderSpec, Rate
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.core.receipts import Lease
from rowmill.streams.ports import Send
from tests.kit.fake_engine import settle
from tests.kit.until import until
from tests.unit.streams.dispatch.role import BROKEN, PROVIDER, TOOL, Role

BATCH = BatchSpec(path="/batch", size=3, members="qs", match="q", linger_ms=5)
BATCHING = TOOL.model_copy(update={"batch": BATCH})


def batching(provider: ProviderSpec = PROVIDER, **spec: Any) -> Role:
    tool = BATCHING.model_copy(update={"batch": BATCH.model_copy(update=spec)})
    role = Role(provider, tool)
    answer(role, lambda questions: [{"q": one, "n": one * 2} for one in questions])
    return role


def answer(role: Role, results: Any) -> None:
    """Answer batches with what `results` makes of their questions, single calls with themselves."""

    def say(number: int) -> Outcome:
        asked = role.provider.sends[number - 1].input
        if "qs" not in asked:
            return Answered({"alone": asked["q"]}, 7, 1.0)
        found = results(asked["qs"])
        return found if isinstance(found, Refused) else Answered(found, 7, 1.0)

    role.provider.answer = say


def bodies(role: Role) -> list[Any]:
    return [send.input.get("qs", send.input) for send in role.provider.sends]


def keys(sends: list[Send]) -> set[str]:
    return {send.idempotency_key for send in sends}


async def ticking(role: Role, condition: Callable[[], Any]) -> None:
    """Wait for a condition while the role's clock goes on."""

    def tick() -> Any:
        role.clock.now_ms += 5
        return condition()

    await until(tick, within_s=5, every_s=0.002)


async def answered(role: Role, count: int) -> dict[str, Any]:
    await ticking(role, lambda: len(role.results) >= count)
    return {result.row: result.output for result in role.results}


@pytest.mark.behaviour("Q2")
async def test_calls_leave_together_and_each_gets_its_own_answer() -> None:
    role = batching()
    answer(role, lambda qs: [{"q": one, "n": one * 2} for one in reversed(qs)])
    asked = [role.ask(f"r{n}", f"k{n}") for n in range(7)]
    found = await answered(role, 7)
    assert bodies(role) == [["k0", "k1", "k2"], ["k3", "k4", "k5"], ["k6"]]
    assert {send.tool.path for send in role.provider.sends} == {"/batch"}
    assert found == {f"r{n}": {"q": f"k{n}", "n": f"k{n}" * 2} for n in range(7)}
    assert all(delivery.acked for delivery in asked)
    assert [result.sends for result in role.results] == [1] * 7
    assert len(role.claims) == 0
    assert sorted(role.table.entries[0]) == [f"k{n}" for n in range(7)], "no batch is left behind"


@pytest.mark.behaviour("Q2")
async def test_who_is_in_a_batch_is_durable_before_it_leaves() -> None:
    role = batching()
    role.app.hold = True
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    await settle()
    assert role.provider.sends == []
    role.app.release()
    await settle()
    (send,) = role.provider.sends
    assert send.input == {"qs": ["k0", "k1", "k2"]}


@pytest.mark.behaviour("Q2")
async def test_members_without_an_answer_are_asked_alone_and_the_others_not_again() -> None:
    role = batching()
    answer(role, lambda qs: [{"q": "k1"}, {"q": "somebody else's"}])
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    found = await answered(role, 3)
    assert found == {"r0": {"alone": "k0"}, "r1": {"q": "k1"}, "r2": {"alone": "k2"}}
    assert sorted(map(str, bodies(role)[1:])) == ["{'q': 'k0'}", "{'q': 'k2'}"]
    assert {send.tool.path for send in role.provider.sends[1:]} == {"/t"}
    assert len(keys(role.provider.sends)) == 3


@pytest.mark.behaviour("Q5")
async def test_a_batch_is_retried_as_it_was_under_its_key() -> None:
    role = batching()
    outcomes = iter([BROKEN, BROKEN])
    answer(role, lambda qs: next(outcomes, [{"q": one} for one in qs]))
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    await answered(role, 3)
    assert bodies(role) == [["k0", "k1", "k2"]] * 3
    assert len(keys(role.provider.sends)) == 1


@pytest.mark.behaviour("Q5")
async def test_a_batch_whose_retries_are_used_up_fails_all_its_members() -> None:
    role = batching()
    answer(role, lambda qs: BROKEN)
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    await answered(role, 3)
    assert [result.status for result in role.results] == ["failed"] * 3
    assert role.stored("k1").failure is not None
    assert len(bodies(role)) == 3


@pytest.mark.behaviour("Q2")
async def test_a_batch_refused_for_what_stands_in_it_is_asked_member_by_member() -> None:
    role = batching()
    invalid = Refused(
        FailureKind.PERMANENT, "422 bad member", retryable=False, maybe_booked=False, reached=True,
        status_code=422,
    )  # fmt: skip
    answer(role, lambda qs: invalid)
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    found = await answered(role, 3)
    assert found == {f"r{n}": {"alone": f"k{n}"} for n in range(3)}


@pytest.mark.behaviour("Q5")
async def test_a_batch_without_credits_withholds_its_members() -> None:
    role = batching()
    spent = Refused(
        FailureKind.OUT_OF_CREDITS, "402", retryable=False, maybe_booked=False, reached=True,
        status_code=402,
    )  # fmt: skip
    answer(role, lambda qs: spent)
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    await answered(role, 3)
    assert [result.status for result in role.results] == ["withheld"] * 3
    assert len(role.claims) == 0


async def dead_with_a_batch_open() -> Role:
    role = batching()
    role.provider.gate = asyncio.Event()
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    await settle()
    assert len(role.provider.sends) == 1
    return role


@pytest.mark.behaviour("Q2")
async def test_a_dead_owners_batch_is_sent_again_exactly_as_it_was() -> None:
    role = await dead_with_a_batch_open()
    successor = Role(PROVIDER, BATCHING, table=role.table)
    answer(successor, lambda qs: [{"q": one} for one in qs])
    successor.ask("r9", "k9")  # a new question, which comes first
    successor.ask("r2", "k2")  # only one of its members is asked for by now
    await successor.feed_back()
    await answered(successor, 2)
    again = next(send for send in successor.provider.sends if len(send.input["qs"]) == 3)
    (before,) = role.provider.sends
    assert (again.input, again.idempotency_key) == (before.input, before.idempotency_key)
    assert successor.stored("k0").output == {"q": "k0"}, "settled, though nobody waits"
    successor.ask("r0", "k0")
    await answered(successor, 3)
    assert [send.input["qs"] for send in successor.provider.sends if "k0" in send.input["qs"]] == [
        ["k0", "k1", "k2"]
    ]
    assert {result.row for result in successor.results} == {"r9", "r2", "r0"}


@pytest.mark.behaviour("R6")
async def test_an_answer_that_came_after_the_handover_settles_each_member() -> None:
    role = await dead_with_a_batch_open()
    role.app.owned.discard(0)
    role.caller.lost({0})
    role.claims.lost({0})
    gate = role.provider.gate
    assert gate is not None
    gate.set()
    await settle(10)
    words = [word for word in role.app.produced["tool.requests"] if word.kind == "settle"]
    assert sorted(word.receipt["key"] for word in words) == ["k0", "k1", "k2"]
    assert {word.receipt["state"] for word in words} == {"completed"}


@pytest.mark.behaviour("Q2")
async def test_a_member_that_is_lost_before_the_first_send_is_out_of_its_batch() -> None:
    role = batching(PROVIDER.model_copy(update={"limits": (Rate(calls=1, per_s=0.05),)}))
    role.ask("r9", "k9")
    await ticking(role, lambda: len(role.provider.sends) == 1)
    for n in range(3):
        role.ask(f"r{n}", f"k{n}")
    await settle()
    role.claims.forget(role.claims._open["k1"])
    await answered(role, 3)
    assert bodies(role) == [["k9"], ["k0", "k2"]]


@pytest.mark.behaviour("Q2")
async def test_two_that_answers_can_not_tell_apart_are_in_two_batches() -> None:
    role = batching(size=10)
    answer(role, lambda qs: [{"q": one["q"]} for one in qs])
    role.ask("r1", "k1", input={"q": "same", "year": 1})
    role.ask("r2", "k2", input={"q": "same", "year": 2})
    await answered(role, 2)
    assert [len(body) for body in bodies(role)] == [1, 1]


@pytest.mark.behaviour("Q4")
async def test_equal_questions_are_one_member() -> None:
    role = batching()
    for row in range(4):
        role.ask(f"r{row}", "k0")
    await answered(role, 4)
    assert bodies(role) == [["k0"]]


@pytest.mark.behaviour("R4")
async def test_a_foreign_owners_batch_is_waited_for_once() -> None:
    role = await dead_with_a_batch_open()
    batch = next(key for key in role.table.entries[0] if key.startswith("batch-"))
    stored = role.stored(batch)
    assert stored.lease is not None
    foreign = Lease(stored.lease.id, 1, "somebody else", 1_000)
    role.store.put(0, replace(stored, lease=foreign))
    successor = Role(PROVIDER, BATCHING, table=role.table)
    answer(successor, lambda qs: [{"q": one} for one in qs])
    for n in range(3):
        successor.ask(f"r{n}", f"k{n}")
    await successor.feed_back()
    assert successor.provider.sends == [], "its lease may live"
    successor.clock.now_ms += 2_000

    async def sent() -> bool:
        await successor.feed_back()
        return bool(successor.results)

    await until(sent, within_s=5)
    assert len(successor.provider.sends) == 1
    assert len(successor.results) == 3
