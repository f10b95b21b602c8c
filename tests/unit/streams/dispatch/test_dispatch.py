"""Dispatch without Kafka: claims, single flight, durable before the send, what a death leaves."""

from __future__ import annotations

import asyncio

import pytest

from rowmill.plays.specs import Rate
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.core.receipts import Lease
from rowmill.topics import codec
from tests.kit.fake_engine import FakeDelivery, settle
from tests.unit.streams.dispatch.role import (
    BROKEN,
    PROVIDER,
    TOOL,
    Role,
    leave_running,
    run_record,
)


@pytest.mark.behaviour("R3")
async def test_running_is_durable_before_the_request_leaves() -> None:
    role = Role()
    role.app.hold = True
    asked = role.ask()
    await settle()
    assert role.provider.sends == [], "the lease is not acknowledged yet"
    role.app.release()
    await settle()
    assert role.provider.durable_at_send == ["running"]
    assert asked.acked


@pytest.mark.behaviour("R2")
async def test_the_answer_is_durable_before_the_result_and_the_result_before_the_offset() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    asked = role.ask()
    await settle()
    role.app.hold = True
    role.provider.gate.set()
    await settle()
    assert role.results == []
    assert not asked.acked
    role.app.release()
    await settle()
    (result,) = role.results
    assert (result.status, result.output, result.sends, result.reused) == (
        "completed", {"n": 1}, 1, False,
    )  # fmt: skip
    assert (result.to_partition, result.cost) == (3, 0.5)
    assert asked.acked


@pytest.mark.behaviour("Q4")
async def test_identical_calls_in_flight_share_one_send_and_one_spend() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    asked = [role.ask("r1"), role.ask("r2"), role.ask("r3")]
    await settle()
    role.provider.gate.set()
    await settle()
    assert len(role.provider.sends) == 1
    told = {result.row: (result.reused, result.sends, result.cost) for result in role.results}
    assert told == {"r1": (False, 1, 0.5), "r2": (True, 0, 0), "r3": (True, 0, 0)}
    assert all(delivery.acked for delivery in asked)


@pytest.mark.behaviour("R2")
async def test_a_final_receipt_answers_without_a_send() -> None:
    role = Role()
    role.ask("r1")
    await settle()
    again = role.ask("r2")
    await settle()
    assert len(role.provider.sends) == 1
    assert role.results[-1].reused
    assert again.acked


async def test_a_row_that_asks_again_is_one_follower_and_its_older_copy_is_acknowledged() -> None:
    role = Role()
    role.provider.gate = asyncio.Event()
    first = role.ask("r1")
    second = role.ask("r1", asked=1)
    await settle()
    assert first.acked
    assert not second.acked
    role.provider.gate.set()
    await settle()
    assert len(role.results) == 1
    assert second.acked


@pytest.mark.behaviour("Q5")
@pytest.mark.behaviour("Q7")
async def test_retries_are_bounded_keep_one_key_and_end_with_the_providers_words() -> None:
    role = Role()
    role.provider.answer = lambda number: BROKEN
    role.ask()
    for _ in range(200):
        await asyncio.sleep(0.001)
        if role.results:
            break
    assert len(role.provider.sends) == 3
    assert len({send.idempotency_key for send in role.provider.sends}) == 1
    (result,) = role.results
    assert result.status == "failed"
    assert result.error["kind"] == "transient"
    assert "503 down" in result.error["message"]
    assert result.sends == 3


@pytest.mark.behaviour("Q5")
async def test_a_429_holds_the_lane_and_uses_up_no_attempt() -> None:
    role = Role()
    waits = Refused(
        FailureKind.TRANSIENT, "429", retryable=True, maybe_booked=False, reached=True,
        status_code=429, retry_after_ms=50, waits=True,
    )  # fmt: skip
    role.provider.answer = lambda number: waits if number == 1 else Answered(1, 1, 1.0)
    role.ask("r1", "k1")
    await settle()
    role.ask("r2", "k2")
    await settle()
    assert len(role.provider.sends) == 1, "the second call waits for the hold"
    role.clock.now_ms += 400
    for _ in range(400):
        await asyncio.sleep(0.002)
        if len(role.results) == 2:
            break
    assert role.stored("k1").attempts == 1
    assert role.stored("k1").sends == 2


@pytest.mark.behaviour("G1")
async def test_no_more_calls_are_in_flight_than_the_provider_allows() -> None:
    role = Role(PROVIDER.model_copy(update={"concurrency": 2}))
    role.provider.gate = asyncio.Event()
    for number in range(5):
        role.ask(f"r{number}", f"k{number}")
    await settle()
    assert len(role.provider.sends) == 2
    role.provider.gate.set()
    await settle(20)
    assert len(role.provider.sends) == 5


@pytest.mark.behaviour("G1")
async def test_a_window_lets_out_only_its_calls() -> None:
    role = Role(PROVIDER.model_copy(update={"limits": (Rate(calls=3, per_s=10),)}))
    for number in range(10):
        role.ask(f"r{number}", f"k{number}")
    await settle()
    assert len(role.provider.sends) == 3


@pytest.mark.behaviour("R4")
async def test_the_same_instance_takes_its_dead_process_call_over_at_once_under_one_key() -> None:
    role = Role()
    dead = leave_running(role, Lease("old", 1, "me", 20_000))
    role.ask("r1")
    await role.feed_back()
    assert len(role.provider.sends) == 1
    assert role.stored().purchase == dead.purchase
    assert role.results[0].sends == 2, "the cut-off send is counted"


@pytest.mark.behaviour("R5")
async def test_a_foreign_lease_is_waited_for_in_full() -> None:
    role = Role()
    leave_running(role, Lease("old", 1, "somebody else", 60))
    role.ask("r1")
    await settle(10)
    assert role.provider.sends == []
    role.clock.now_ms += 61
    await role.feed_back()
    assert len(role.provider.sends) == 1


async def test_a_cut_off_call_of_a_tool_without_idempotency_is_not_sent_again() -> None:
    role = Role(tool=TOOL.model_copy(update={"idempotent": False}))
    leave_running(role, Lease("old", 1, "me", 20_000))
    role.ask("r1")
    await role.feed_back()
    assert role.provider.sends == []
    assert role.results[0].error["kind"] == "outcome unknown"


@pytest.mark.behaviour("R11")
async def test_what_was_not_sent_is_left_to_the_next_owner_and_what_was_sent_goes_on() -> None:
    role = Role(PROVIDER.model_copy(update={"concurrency": 1}))
    role.provider.gate = asyncio.Event()
    sent, queued = role.ask("r1", "k1"), role.ask("r2", "k2")
    await settle()
    role.app.owned.clear()
    role.claims.lost({0})
    sent.live = queued.live = False
    assert len(role.claims) == 1
    role.app.owned.add(0)
    role.app.epoch_number = 2
    again = role.ask("r1", "k1")
    role.provider.gate.set()
    await role.feed_back()
    assert len(role.provider.sends) == 1, "the redelivered request joined the call in flight"
    assert again.acked
    assert not queued.acked


async def test_requests_wait_for_their_run_to_be_known() -> None:
    role = Role()
    asked = role.ask("r1", "k", run="later")
    await settle()
    assert role.provider.sends == []
    late = run_record([PROVIDER], [TOOL], run="later")
    role.runs.apply("later", codec.encode(late), 5)
    role.requests.run_changed(late)
    await settle()
    assert asked.acked


async def test_a_tool_that_the_run_does_not_declare_fails_the_row_and_stores_nothing() -> None:
    role = Role()
    role.ask("r1", "k", tool="unknown")
    await settle()
    assert 'declares no tool "unknown"' in role.results[0].error["message"]
    assert role.table.writes == []


async def test_a_record_that_nobody_can_read_goes_to_the_dead_letter() -> None:
    role = Role()
    bad = FakeDelivery(b'{"schema_version": 99}', partition=2, offset=7, topic="tool.requests")
    role.requests.offer(bad)  # type: ignore[arg-type]
    await settle()
    (letter,) = role.app.produced["rows.dead-letter"]
    assert (letter.topic, letter.partition, letter.offset) == ("tool.requests", 2, 7)
    assert "schema version 99" in letter.reason
    assert bad.acked


async def test_a_fault_of_our_own_code_ends_the_process_instead_of_hanging_the_row() -> None:
    role = Role()

    def broken(number: int) -> Outcome:
        raise RuntimeError("bug")

    role.provider.answer = broken
    role.ask()
    await settle()
    assert [str(error) for error in role.app.failures] == ["bug"]
