"""The dispatch role on a fake engine, with a provider that answers what the test says."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, cast

from rowmill.plays.specs import ProviderSpec, RetryPolicy, ToolSpec
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.core.receipts import Ask, Asker, Lease, Receipt, claim, pick, start
from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.caller import Caller
from rowmill.streams.dispatch.claims import Claims
from rowmill.streams.dispatch.lanes import Lanes
from rowmill.streams.dispatch.limits import LimitStore, RunLimits
from rowmill.streams.dispatch.notes import CallNotes
from rowmill.streams.dispatch.owner import OwnerMail, Ownership, ReceiptStore
from rowmill.streams.dispatch.permits import Means, PacingStore
from rowmill.streams.dispatch.requests import Requests
from rowmill.streams.ports import NotSent, Send
from rowmill.topics import codec
from rowmill.topics.contracts import PlayReference, ReceiptEntry, RunOptions, RunRecord, ToolRequest
from rowmill.topics.views import RunsView
from tests.kit.fake_engine import FakeApp, FakeDelivery, FakeTable, delivered

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
        self.connecting: asyncio.Event | None = None

    async def call(self, send: Send) -> Outcome:
        self.connects()
        if self.connecting is not None:
            await self.connecting.wait()
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
        app: FakeApp | None = None,
    ) -> None:
        self.app = cast(Any, app or FakeApp())
        self.table = cast(Any, table or FakeTable(self.app))
        self.table.app = self.app
        self.clock = FakeClock()
        self.provider = FakeProvider(self.table)
        self.ids = iter(f"{instance}{number}" for number in range(10_000))
        self.gate_open = True
        self.events: list[dict[str, Any]] = []
        own = Ownership(
            instance, self.app.epoch, self.app.owns, lambda: self.gate_open, lambda p: 1_000_000
        )
        self.store = ReceiptStore(self.table, own)
        self.mail = mail = OwnerMail(self.app)
        notes = CallNotes(self.note)
        caller = Caller(
            self.store, mail, self.provider, own, self.clock, lease_ms=lease_ms, bytes_max=1_000,
            new_id=self.new_id, chance=lambda: 0.5, crash=self.app.fail, notes=notes,
        )  # fmt: skip
        self.lanes = Lanes(self.clock, caller.send, concurrency_default=32, share=lambda: 1.0,
            gate=lambda: self.gate_open, means=self.means(own),
        )  # fmt: skip
        answers = Answers(self.app)
        self.runs = RunsView()
        self.limits_table = FakeTable(self.app)
        limit_store = LimitStore(cast(Any, self.limits_table), own)
        self.limits = RunLimits(self.runs, limit_store, mail, own, 8)
        own_clock, new_id = self.clock, self.new_id
        self.claims = Claims(
            self.store, self.lanes, answers, mail, own, own_clock, new_id, notes, self.limits, 1_000
        )
        caller.connect(self.claims, self.lanes)
        self.caller = caller
        self.requests = Requests(
            self.app, self.runs, self.claims, answers, mail, self.limits, partitions=8
        )
        self.record = run_record([provider], [tool])
        self.runs.apply("run", codec.encode(self.record), 0)

    def means(self, own: Ownership) -> Means:
        self.pacing = FakeTable(self.app)
        self.read_past_error: Exception | None = None
        blocks = itertools.count()

        async def read_past(partition: int) -> None:
            await asyncio.sleep(0)
            if self.read_past_error is not None:
                raise self.read_past_error

        store = PacingStore(cast(Any, self.pacing), own, own.instance)
        new_id = lambda: f"b{next(blocks)}"
        return Means(store, own, self.clock, new_id, read_past, self.note, self.app.fail)

    def note(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})

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


def leave_running(role: Role, lease: Lease) -> Receipt:
    """Leave a running receipt in the table, as a dead owner would."""
    ask = Ask("k", "t", "p", Asker("run", 1, "r1", "c/k"), now_wall_ms=1_000_000)
    receipt = start(pick(claim(None, ask, "purchase")[0]), lease, 1_000_000)
    entry = ReceiptEntry(epoch=1, receipt=receipt)
    role.table.entries[0]["k"] = codec.encode(entry)
    return receipt
