"""The single steps that Hypothesis chooses from, and what longer ones are made of."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rowmill.streams.core.commands import Force
from rowmill.streams.core.receipts import Asker
from tests.property.receipts.broker import Request
from tests.property.receipts.caller import Answer
from tests.property.receipts.claims import Call
from tests.property.receipts.ledger import LEASE_MS
from tests.property.receipts.world import Worker, World

CLOCK = st.tuples(st.floats(0.98, 1.02), st.integers(0, 20_000_000))
"""Rate and offset: clocks that differ by up to 4 %, where a lease allows 5 %."""

KEYS = st.sampled_from(["k1", "k2"])
NUMBER = st.integers(0, 11)
ANSWER: st.SearchStrategy[Answer] = st.sampled_from(
    ["ok", "ok", "no", "broken", "broken", "wait", "unreached"]
)
FORCE: st.SearchStrategy[tuple[Force | None, str | None]] = st.sampled_from(
    [(None, None), (None, None), ("all", "run1:1"), ("all", "run1:2"), ("failed", "run0:3")]
)


class SmallSteps(RuleBasedStateMachine):
    """One thing happens to one worker, record, call or clock."""

    world: World

    @initialize(clocks=st.lists(CLOCK, min_size=2, max_size=3), idempotent=st.booleans())
    def begin(self, clocks: list[tuple[float, float]], idempotent: bool) -> None:
        """Two or three workers; the first is the owner."""
        self.world = World(clocks, idempotent=idempotent)
        self.world.assign(self.world.workers[0], flush=True)

    def worker(self, number: int) -> Worker:
        """Return a worker."""
        return self.world.workers[number % len(self.world.workers)]

    def queued(self) -> list[tuple[Worker, Call]]:
        """What may be sent next, by the processes that run."""
        running = (worker for worker in self.world.workers if worker.process.acts)
        return [(worker, call) for worker in running for call in worker.claims.lane]

    def sent(self) -> list[tuple[Worker, Call]]:
        """What the provider has open, of the processes that live."""
        return [(worker, call) for worker in self.world.workers for call in worker.caller.sent]

    @rule(
        key=KEYS, row=st.integers(0, 3), forced=FORCE, stale=st.sampled_from([None, None, 15_000])
    )
    def ask(
        self, key: str, row: int, forced: tuple[Force | None, str | None], stale: int | None
    ) -> None:
        """A row asks."""
        self.ask_again(key, row, forced, stale)

    def ask_again(
        self,
        key: str,
        row: int,
        forced: tuple[Force | None, str | None],
        stale: int | None = None,
    ) -> None:
        """Let a row ask, for the first time or anew."""
        asker = Asker(run=f"run{row % 2}", life=1, row=f"r{row}", call=key)
        self.world.ask(Request(key, asker, *forced, stale_after_ms=stale))

    @rule(number=NUMBER, times=st.integers(1, 5))
    def read(self, number: int, times: int) -> None:
        """A worker takes words in."""
        for _ in range(times):
            self.worker(number).read()

    @rule(number=NUMBER, times=st.integers(1, 3))
    def deliver(self, number: int, times: int) -> None:
        """A worker's oldest records arrive."""
        for _ in range(times):
            self.worker(number).process.deliver()

    @rule(arrives=st.booleans())
    def stray(self, arrives: bool) -> None:
        """What a dead process left in its socket arrives, or never does."""
        self.world.stray(arrives=arrives)

    @rule(number=NUMBER)
    def leave(self, number: int) -> None:
        """A call leaves its lane."""
        if found := self.queued():
            worker, call = found[number % len(found)]
            worker.leave(call)

    @rule(number=NUMBER)
    def beat(self, number: int) -> None:
        """A lease is renewed."""
        if found := [each for each in self.sent() if each[0].process.acts]:
            worker, call = found[number % len(found)]
            worker.caller.beat(call)

    @rule(number=NUMBER, answer=ANSWER)
    def answer(self, number: int, answer: Answer) -> None:
        """The provider answers."""
        if found := self.sent():
            self.hear(*found[number % len(found)], answer)

    @rule(by_ms=st.sampled_from([1, 600, 3_000, 9_000, 11_000, LEASE_MS]))
    def pass_time(self, by_ms: int) -> None:
        """Time passes."""
        self.world.pass_time(by_ms)

    @rule(number=NUMBER, flush=st.booleans())
    def assign(self, number: int, flush: bool) -> None:
        """A rebalance."""
        self.world.assign(self.worker(number), flush=flush)

    @rule(number=NUMBER)
    def kill(self, number: int) -> None:
        """kill -9."""
        self.world.kill(self.worker(number))

    @rule(number=NUMBER)
    def restart(self, number: int) -> None:
        """A killed worker begins anew."""
        self.world.restart(self.worker(number))

    @rule(number=NUMBER, frozen=st.booleans(), timers_first=st.booleans())
    def freeze_or_thaw(self, number: int, frozen: bool, timers_first: bool) -> None:
        """SIGSTOP or SIGCONT."""
        worker = self.worker(number)
        worker.process.frozen = worker.process.alive and frozen
        self.world.wake(worker, timers_first=timers_first)

    @rule(number=NUMBER, connected=st.booleans())
    def cut_or_heal(self, number: int, connected: bool) -> None:
        """A worker's wire is cut, or mended."""
        self.worker(number).process.connected = connected
        self.world.wake(self.worker(number))

    @rule()
    def go_on(self) -> None:
        """All that is ready happens, but for what the provider says."""
        for _ in range(3):
            for worker in self.world.workers:
                for _ in range(8):
                    worker.process.deliver()
                    worker.read()
            for worker, call in self.queued():
                worker.leave(call)

    def trouble(self, worker: Worker, how: str) -> None:
        """Make trouble for a worker."""
        if how == "kill":
            self.world.kill(worker)
        process = worker.process
        process.frozen = process.alive and (process.frozen or how == "freeze")
        process.connected = process.connected and how != "cut"

    def heal(self, worker: Worker) -> None:
        """Let a worker live, run and be heard."""
        self.world.restart(worker)
        worker.process.frozen, worker.process.connected = False, True
        self.world.wake(worker)

    def hear(self, worker: Worker, call: Call, answer: Answer) -> None:
        """Let a worker hear an answer."""
        worker.caller.hear(call, answer)
        worker.process.turn()

    def hear_all(self, worker: Worker, answer: Answer | None) -> None:
        """Let a worker hear of all its sends."""
        for call in list(worker.caller.sent) if answer else ():
            self.hear(worker, call, answer or "ok")
