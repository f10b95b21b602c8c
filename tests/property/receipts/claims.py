"""The claims of one process: dispatch/claims.py step by step, on the pretended owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rowmill.streams.core import receipts
from rowmill.streams.core.receipts import Ask, Existing, Receipt
from tests.property.receipts.broker import Request, Word
from tests.property.receipts.ledger import Ledger, Send
from tests.property.receipts.owner import Delivery, NotOwned, Owner
from tests.property.receipts.process import Promise, Steps

Waiter = tuple[Request, Delivery]
LONG_MS = 10**12


@dataclass(eq=False)
class Call:
    """A call that is open in one process, as in dispatch/calls.py. `send`: while it is under way."""

    receipt: Receipt
    opened_ms: int
    waiters: dict[tuple[str, str, str], Waiter] = field(default_factory=dict)
    later: list[Waiter] = field(default_factory=list)
    sending: bool = False
    foreign_until_ms: float = 0
    send: Send | None = None


class Claims:
    """Decides what each word becomes. `lane`: calls that may be sent next."""

    def __init__(self, owner: Owner, ledger: Ledger) -> None:
        self.owner = owner
        self.ledger = ledger
        self.lane: list[Call] = []
        self.open: dict[str, Call] = {}
        self._settling: dict[str, Promise] = {}

    def offer(self, delivery: Delivery, word: Word) -> None:
        """Take one word in, as dispatch/requests.py does."""
        if word.kind == "ask":
            assert word.request is not None
            self._ask(delivery, word.request)
        elif word.kind == "settle":
            self._settle_late(delivery, word)
        else:
            self.owner.ack(delivery)
            if word.kind == "barrier":
                self.owner.passed(word.id)
            else:
                self._renewed(word)

    def settled(self, call: Call) -> None:
        """Answer everybody who waits for a call whose final receipt is durable. Raises: NotOwned."""
        self.forget(call)
        self.owner.owned_epoch()
        for request, delivery in call.waiters.values():
            self._give(call.receipt, request, delivery)
        for request, delivery in call.later:
            if self.owner.live(delivery):
                self._ask(delivery, request)

    def forget(self, call: Call) -> None:
        """Drop an open call without an answer."""
        if self.holds(call):
            del self.open[call.receipt.key]

    def forget_unless_owned(self, call: Call) -> None:
        """Leave a call that is not being sent to whoever owns the partition now."""
        if not self.owner.owns:
            self.forget(call)

    def lost(self) -> None:
        """Release what was not sent (R11): the stored receipt says as much already."""
        for call in self.lane:
            released = receipts.release(call.receipt)
            assert released.state == "queued"
            assert (released.lease, released.purchase) == (None, call.receipt.purchase)
        self.lane.clear()
        for call in list(self.open.values()):
            if not call.sending:
                self.forget(call)

    def came_back(self) -> None:
        """Leave calls in flight that another owner took further while the partition was away."""
        for call in list(self.open.values()):
            stored = self.owner.get(call.receipt.key)
            known = (call.receipt.purchase, call.receipt.lease)
            if stored is None or (stored.purchase, stored.lease) != known:
                self.forget(call)

    def holds(self, call: Call) -> bool:
        """True while that call is open here."""
        return self.open.get(call.receipt.key) is call

    def goes_on(self, call: Call) -> bool:
        """True while that call may still be sent, renewed and settled."""
        return self.holds(call) and call.receipt.key not in self._settling

    def go_on(self, call: Call) -> None:
        """Go on with an open receipt that somebody else left."""
        if call.receipt.state != "running":
            self.lane.append(call)
            return
        lease = call.receipt.lease
        if lease is not None and lease.instance != self.owner.process.instance:
            call.foreign_until_ms = self.owner.recovered_ms + lease.duration_ms
        self.owner.process.spawn(self._take_over(call))

    def _ask(self, delivery: Delivery, request: Request) -> None:
        if self._waits_for_settling(request.key, delivery, lambda: self._ask(delivery, request)):
            return
        ask = self._ask_of(request)
        call = self.open.get(request.key)
        if call is None:
            stored = self.owner.get(request.key)
            if stored is None or stored.final:
                self._decide(stored, ask, request, delivery)
                return
            call = self._opened(stored)
            self.go_on(call)
        if receipts.joins(call.receipt, ask):
            self._join(call, request, delivery)
        else:
            call.later.append((request, delivery))

    def _decide(
        self, stored: Receipt | None, ask: Ask, request: Request, delivery: Delivery
    ) -> None:
        receipt, answer = receipts.claim(stored, ask, self.owner.new_id("p"))
        answers = isinstance(answer, Existing)
        self.ledger.claimed(stored, ask, None if answers else receipt.purchase)
        if answers:
            self._give(receipt, request, delivery)
        else:
            call = self._opened(receipt)
            self._join(call, request, delivery)
            self.lane.append(call)

    def _join(self, call: Call, request: Request, delivery: Delivery) -> None:
        asker = request.asker
        question = (asker.run, asker.row, asker.call)
        older = call.waiters.get(question)
        call.waiters[question] = (request, delivery)
        if older is not None:
            self.owner.ack(older[1])

    def _give(self, receipt: Receipt, request: Request, delivery: Delivery) -> None:
        sent = self.owner.process.send(lambda: self.ledger.answered(request, receipt))
        sent.then(lambda _: self.owner.ack(delivery))

    def _ask_of(self, request: Request) -> Ask:
        return Ask(
            key=request.key,
            tool="t",
            provider="p",
            asker=request.asker,
            now_wall_ms=self.owner.process.clock(),
            force=request.force,
            token=request.token,
            stale_after_ms=request.stale_after_ms,
        )

    def _opened(self, receipt: Receipt) -> Call:
        call = self.open[receipt.key] = Call(receipt, self.owner.process.clock())
        return call

    def _renewed(self, word: Word) -> None:
        call = self.open.get(word.key)
        lease = call.receipt.lease if call is not None else None
        if call is not None and lease is not None and lease.id == word.id:
            call.foreign_until_ms = self.owner.process.clock() + lease.duration_ms

    def _settle_late(self, delivery: Delivery, word: Word) -> None:
        if self._waits_for_settling(word.key, delivery, lambda: self._settle_late(delivery, word)):
            return
        assert word.receipt is not None
        call = self.open.get(word.key)
        known = call.receipt if call is not None else self.owner.get(word.key)
        settled = receipts.settle_late(known, word.receipt, word.id) if known else None
        if settled is None:
            self.owner.ack(delivery)
            return
        self.lane = [queued for queued in self.lane if queued is not call]
        durable = self._settling[word.key] = self.owner.put(settled)
        durable.then(lambda done: None if done.error else self.owner.ack(delivery))
        durable.then(lambda done: self._late_is_durable(done, call, settled))

    def _late_is_durable(self, done: Promise, call: Call | None, settled: Receipt) -> None:
        self._settling.pop(settled.key, None)
        if call is not None and self.holds(call) and not done.error:
            call.receipt = settled
            self.settled(call)

    def _waits_for_settling(self, key: str, delivery: Delivery, again: Callable[[], None]) -> bool:
        settling = self._settling.get(key)
        if settling is None:
            return False
        settling.then(lambda _: again() if self.owner.live(delivery) else None)
        return True

    def _take_over(self, call: Call) -> Steps[None]:
        yield from self._outlast(call)
        if not self.goes_on(call) or call.receipt.state != "running":
            return
        taken = receipts.take_over(
            call.receipt,
            idempotent=self.ledger.idempotent,
            key_lifetime_ms=LONG_MS,
            now_wall_ms=self.owner.process.clock(),
        )
        call.receipt = taken
        if not taken.final:
            self.lane.append(call)
            return
        try:
            yield self.owner.put(taken)
            self.settled(call)
        except NotOwned:
            self.forget(call)

    def _outlast(self, call: Call) -> Steps[None]:
        while self.goes_on(call):
            if call.foreign_until_ms > self.owner.process.clock():
                yield self.owner.process.at(call.foreign_until_ms)
                continue
            until_ms = call.foreign_until_ms
            yield self.owner.barrier(call.receipt.key)
            if call.foreign_until_ms == until_ms:
                return
