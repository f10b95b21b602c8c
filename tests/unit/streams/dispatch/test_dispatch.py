"""Dispatch without Kafka: claims, single flight, durable before the send, what a death leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from rowmill.plays.specs import ProviderSpec, Rate, RetryPolicy, ToolSpec
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.core.receipts import Lease, Receipt
from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.caller import Caller
from rowmill.streams.dispatch.claims import Claims
from rowmill.streams.dispatch.lanes import Lanes
from rowmill.streams.dispatch.owner import OwnerMail, Ownership, ReceiptStore
from rowmill.streams.dispatch.requests import Requests
from rowmill.streams.ports import NotSent, Send
from rowmill.topics import codec
from rowmill.topics.contracts import PlayReference, ReceiptEntry, RunOptions, RunRecord, ToolRequest
from rowmill.topics.views import RunsView
from tests.kit.fake_engine import FakeApp, FakeDelivery, FakeTable, delivered, settle

PROVIDER = ProviderSpec(
    id="p", base_url="http://provider.test", retry=RetryPolicy(backoff_s=0.001, backoff_s_max=0.001)
)
TOOL = ToolSpec(id="t", provider="p", path="/t", cost=0.5)
BROKEN = Refused(
    FailureKind.TRANSIENT, "503 down", retryable=True, maybe_booked=True, reached=True,
    status_code=503,
)  # fmt: skip


class FakeClock:
    """Time that stands still unless told."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    wall_ms = monotonic_ms


class FakeProvider:
    """Answers what the test says; remembers every send and what was durable then."""

    def __init__(self, table: FakeTable) -> None:
        self.table = table
        self.sends: list[Send] = []
        self.durable_at_send: list[str] = []
        self.answer: Callable[[int], Outcome] = lambda number: Answered({"n": number}, 7, 1.0)
        self.gate: asyncio.Event | None = None
        self.connects: Callable[[], None] = lambda: None

    async def call(self, send: Send) -> Outcome:
        self.connects()
        if not send.may_leave():
            raise NotSent
        self.sends.append(send)
        _, stored = self.table.writes[-1]
        self.durable_at_send.append(codec.decode(ReceiptEntry, stored).receipt.state)
        number = len(self.sends)
        if self.gate is not None:
            await self.gate.wait()
        return self.answer(number)

    async def close(self) -> None:
        return None


class Role:
    """The dispatch role on the fake engine."""

    def __init__(
        self,
        provider: ProviderSpec = PROVIDER,
        tool: ToolSpec = TOOL,
        *,
        lease_ms: int = 20_000,
        table: FakeTable | None = None,
        instance: str = "me",
    ) -> None:
        self.app = cast(Any, FakeApp())
        self.table = cast(Any, table or FakeTable(self.app))
        self.table.app = self.app
        self.clock = FakeClock()
        self.provider = FakeProvider(self.table)
        self.ids = iter(f"{instance}{number}" for number in range(10_000))
        self.gate_open = True
        own = Ownership(
            instance, self.app.epoch, self.app.owns, lambda: self.gate_open, lambda p: 1_000_000
        )
        self.store = ReceiptStore(self.table, own)
        mail = OwnerMail(self.app)
        caller = Caller(
            self.store, mail, self.provider, own, self.clock, lease_ms=lease_ms, bytes_max=1_000,
            new_id=self.new_id, chance=lambda: 0.5, crash=self.app.fail,
        )  # fmt: skip
        self.lanes = Lanes(self.clock, caller.send, concurrency_default=32, share=lambda: 1.0,
            gate=lambda: self.gate_open,
        )  # fmt: skip
        answers = Answers(self.app)
        self.claims = Claims(self.store, self.lanes, answers, mail, own, self.clock, self.new_id)
        caller.connect(self.claims, self.lanes)
        self.caller = caller
        self.runs = RunsView()
        self.requests = Requests(self.app, self.runs, self.claims, answers, mail)
        self.record = run_record([provider], [tool])
        self.runs.apply("run", codec.encode(self.record), 0)

    def new_id(self) -> str:
        return next(self.ids)

    def ask(self, row: str = "r1", receipt: str = "k", **fields: Any) -> FakeDelivery:
        delivery = delivered(request(row, receipt, **fields))
        self.requests.offer(delivery)  # type: ignore[arg-type]  # the fake has what is used
        return delivery

    async def feed_back(self) -> None:
        """Deliver what the role wrote to its own partition, until nothing more comes."""
        fed = 0
        for _ in range(100):
            await asyncio.sleep(0.002)
            for value in self.app.raw["tool.requests"][fed:]:
                fed += 1
                self.requests.offer(FakeDelivery(value))  # type: ignore[arg-type]

    @property
    def results(self) -> list[Any]:
        found: list[Any] = self.app.produced["provider.results"]
        return found

    def stored(self, key: str = "k") -> Receipt:
        receipt = self.store.get(0, key)
        assert receipt is not None
        return receipt


def run_record(providers: list[ProviderSpec], tools: list[ToolSpec], run: str = "run") -> RunRecord:
    return RunRecord(
        run=run, life=1, claim="c", instance="i", pid=1, state="open", started_at_ms=0,
        updated_at_ms=0, dataset="d", play=PlayReference(name="p", digest="x"),
        options=RunOptions(), providers=providers, tools=tools,
    )  # fmt: skip


def request(row: str, receipt: str, **fields: Any) -> ToolRequest:
    plain: dict[str, Any] = {
        "run": "run", "life": 1, "dataset": "d", "row": row, "call": f"c/{receipt}",
        "receipt": receipt, "tool": "t", "input": {"q": receipt}, "reply_partition": 3,
    }  # fmt: skip
    return ToolRequest(**(plain | fields))


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


async def test_a_record_that_nobody_can_read_goes_to_the_dead_letter_and_the_role_lives_on() -> (
    None
):
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


def leave_running(role: Role, lease: Lease) -> Receipt:
    from rowmill.streams.core.receipts import Ask, Asker, claim, pick, start

    ask = Ask("k", "t", "p", Asker("run", 1, "r1", "c/k"), now_wall_ms=1_000_000)
    receipt = start(pick(claim(None, ask, "purchase")[0]), lease)
    entry = ReceiptEntry(epoch=1, receipt=receipt)
    role.table.entries[0]["k"] = codec.encode(entry)
    return receipt
