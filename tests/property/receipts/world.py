"""Several workers at one partition: who lives, who is heard, who owns, what gets through."""

from __future__ import annotations

from collections import deque

from tests.property.receipts.broker import Broker, Request, Word
from tests.property.receipts.caller import Caller
from tests.property.receipts.claims import Call, Claims
from tests.property.receipts.ledger import Ledger
from tests.property.receipts.owner import Delivery, Owner
from tests.property.receipts.process import Process, Record, Time

SESSION_MS = 10_000


class Worker:
    """One instance: a process, and after its death another one with the same id and clock."""

    def __init__(self, world: World, instance: str, rate: float, offset: float) -> None:
        self._world = world
        self._clock = (rate, offset)
        self.beat_ms = 0.0
        self._begin(instance)

    def _begin(self, instance: str) -> None:
        world = self._world
        self.process = Process(instance, world.time, *self._clock)
        self.owner = Owner(self.process, world.broker, world.new_id)
        self.claims = Claims(self.owner, world.ledger)
        self.caller = Caller(self.claims)

    def restart(self) -> None:
        """Begin anew, with nothing in memory."""
        self._begin(self.process.instance)

    def read(self) -> None:
        """Take the next open word in."""
        owner = self.owner
        if not self.process.reachable or self._world.present is not self or not owner.owns:
            return
        words = self._world.broker.words
        if owner.position < len(words):
            offset = owner.position
            owner.position += 1
            self.claims.offer(Delivery(offset, owner.assignment), words[offset])
            self.process.turn()

    def leave(self, call: Call) -> None:
        """Let a call out of the lane."""
        self.caller.leave(call)
        self.process.turn()

    def wake(self, *, timers_first: bool) -> None:
        """Go on after a freeze: what lay in its sockets and what its timers say, in either order."""
        if timers_first:
            self.ring()
        self.process.turn()
        self.ring()

    def ring(self) -> None:
        """Let its timers go off."""
        self.caller.lose_leases()
        self.process.ring()

    def give_up(self, *, flush: bool) -> None:
        """Hear that the partition is revoked: what is on the wire gets through first, or not."""
        self.claims.lost()
        self.owner.leaving = True
        for _ in range(len(self.process.wire) + 5 if flush else 0):
            self.process.deliver()
        self.owner.end()
        self.process.turn()


class World:
    """Workers, broker and provider. `present`: the owner in the eyes of the group."""

    def __init__(self, clocks: list[tuple[float, float]], *, idempotent: bool) -> None:
        self.time = Time()
        self.broker = Broker()
        self.ledger = Ledger(idempotent)
        self.strays: deque[Record] = deque()
        self._ids = 0
        self.workers = [Worker(self, f"w{n}", *clock) for n, clock in enumerate(clocks)]
        self.present: Worker | None = None

    def new_id(self, kind: str) -> str:
        """Return an id that was never given."""
        self._ids += 1
        return f"{kind}{self._ids}"

    def ask(self, request: Request) -> None:
        """A row asks."""
        self.broker.append(Word("ask", request.key, request=request))

    def pass_time(self, by_ms: float) -> None:
        """Advance; an owner that runs and is connected is heard by the group."""
        self.time.now_ms += by_ms
        for worker in self.workers:
            self._heard(worker)
            worker.ring()

    def _heard(self, worker: Worker) -> None:
        if worker is self.present and worker.process.reachable:
            worker.beat_ms = self.time.now_ms
            worker.owner.heard_ms = worker.process.clock()

    def assign(self, worker: Worker, *, flush: bool) -> None:
        """Give the partition to a worker, its present owner included (an eager rebalance)."""
        former = self.present
        if not worker.process.reachable:
            return
        if former is not None and former.process.reachable:
            former.give_up(flush=flush)
        elif former is not None and self.time.now_ms - former.beat_ms < SESSION_MS:
            return
        self.present = worker
        if worker.owner.owns:
            worker.give_up(flush=flush)
        worker.owner.begin()
        worker.claims.came_back()
        worker.beat_ms = self.time.now_ms

    def wake(self, worker: Worker, *, timers_first: bool = True) -> None:
        """A thawed or healed worker finds out what happened: at last, from the group."""
        worker.wake(timers_first=timers_first)
        if worker.process.reachable and worker.owner.owns and self.present is not worker:
            worker.give_up(flush=True)
        self._heard(worker)

    def kill(self, worker: Worker) -> None:
        """kill -9: memory is gone, what lay in its socket may arrive yet."""
        if not worker.process.alive:
            return
        self.ledger.died(worker.process)
        self.strays.extend(worker.process.die())
        worker.owner.epoch = None

    def restart(self, worker: Worker) -> None:
        """Start a killed worker: within its session it gets its partition back at once."""
        if worker.process.alive:
            return
        worker.restart()
        if self.present is worker:
            self.present = None
            self.assign(worker, flush=False)

    def stray(self, *, arrives: bool) -> None:
        """What a dead process left in its socket arrives, or is lost."""
        if self.strays:
            record = self.strays.popleft()
            if arrives:
                record.arrive()
