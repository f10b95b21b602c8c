"""The sends of one process: dispatch/caller.py step by step, on the pretended owner."""

from __future__ import annotations

from typing import Literal

from rowmill.streams.core import receipts
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.core.receipts import Failure, Lease, Receipt
from rowmill.streams.core.retries import GiveUp, RetryAt, RetryPolicy, next_step
from tests.property.receipts.broker import ATTEMPTS, Word
from tests.property.receipts.claims import LONG_MS, Call, Claims
from tests.property.receipts.ledger import LEASE_MS, Heartbeat
from tests.property.receipts.owner import NotOwned
from tests.property.receipts.process import Promise, Steps

Answer = Literal["ok", "no", "broken", "wait", "unreached"]
Next = int | Literal["settled", "left"]

REFUSED: dict[str, Refused] = {
    "no": Refused(FailureKind.PERMANENT, "400", False, False, True),
    "broken": Refused(FailureKind.TRANSIENT, "503", True, True, True),
    "wait": Refused(FailureKind.TRANSIENT, "429", True, False, True, retry_after_ms=1_000, waits=True),
    "unreached": Refused(FailureKind.UNREACHABLE, "no connection", True, False, False),
}  # fmt: skip
LOST = Refused(FailureKind.LEASE_LOST, "lease lost", True, True, True)


class Caller:
    """Sends calls that their lane let out, and settles them."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._owner = claims.owner
        self._process = claims.owner.process
        self._ledger = claims.ledger
        self.sent: list[Call] = []
        self._policy = RetryPolicy(
            attempts=ATTEMPTS,
            deadline_ms=LONG_MS,
            idempotent=self._ledger.idempotent,
            key_lifetime_ms=LONG_MS,
        )

    def leave(self, call: Call) -> None:
        """Let a call out of its lane, where the gate is open."""
        if self._owner.gate():
            self._claims.lane.remove(call)
            call.sending = True
            self._process.spawn(self._run(call))

    def hear(self, call: Call, answer: Answer) -> None:
        """The provider answers."""
        assert call.send is not None
        number = len(self._ledger.sends[call.send.purchase])
        output = Answered(f"{call.send.purchase}/{number}", 1, 1.0)
        self._end(call, REFUSED.get(answer, output))

    def lose_leases(self) -> None:
        """The timers of the heartbeats: a call whose lease is lost is cut off (R4)."""
        for call in list(self.sent):
            if self._process.acts and call.send and call.send.heartbeat.expired:
                self._end(call, LOST)

    def beat(self, call: Call) -> None:
        """Renew a lease, where no beat of it is on its way."""
        send = call.send
        if send is None or send.heartbeat.beating or not self._claims.goes_on(call):
            return
        heartbeat, sent_ms = send.heartbeat, self._process.clock()

        def confirmed(done: Promise) -> None:
            heartbeat.beating = False
            if done.error is None:
                heartbeat.confirmed_ms = max(heartbeat.confirmed_ms, sent_ms)

        heartbeat.beating = True
        self._renew(call).then(confirmed)

    def _renew(self, call: Call) -> Promise:
        lease = call.receipt.lease
        assert lease is not None
        if self._may_write(lease):
            return self._owner.put(call.receipt)
        return self._owner.mail(Word("renew", call.receipt.key, id=lease.id))

    def _end(self, call: Call, outcome: Outcome) -> None:
        send, call.send = call.send, None
        self.sent.remove(call)
        if send is not None:
            send.outcome = outcome
            send.answer.settle(outcome)

    def _run(self, call: Call) -> Steps[None]:
        try:
            step = yield from self._attempt(call)
            call.sending = False
            if step == "settled":
                self._claims.settled(call)
            else:
                self._claims.forget_unless_owned(call)
            if isinstance(step, int):
                yield self._process.at(self._process.clock() + step)
                if self._claims.goes_on(call) and call.receipt.state == "queued":
                    self._claims.lane.append(call)
        except NotOwned:
            self._claims.forget(call)

    def _attempt(self, call: Call) -> Steps[Next]:
        if not self._claims.goes_on(call):
            return "left"
        stored = self._stored(call)
        if stored is not None and stored.final:
            call.receipt = stored
            return "settled"
        new_id, epoch = self._owner.new_id, self._owner.owned_epoch()
        lease = Lease(new_id("l"), epoch, self._process.instance, LEASE_MS)
        heartbeat = Heartbeat(lease, self._process, self._process.clock())
        call.receipt = receipts.start(receipts.pick(call.receipt), lease, self._process.clock())
        yield self._owner.put(call.receipt)
        if not self._claims.goes_on(call):
            return "left"
        if not self._may_act(heartbeat):
            self._park(call, heartbeat, reached=False, uses_attempt=False)
            return 100
        outcome = yield from self._ask(call, heartbeat)
        now_ms = self._process.clock()
        if not self._claims.goes_on(call):
            if not call.receipt.final and isinstance(outcome, Answered):
                late = receipts.complete(call.receipt, lease.id, outcome.output, now_ms)
                yield self._owner.mail(Word("settle", late.key, receipt=late, id=lease.id))
            return "left"
        if isinstance(outcome, Answered):
            receipt = receipts.complete(call.receipt, lease.id, outcome.output, now_ms)
            return (yield from self._settle(call, receipt, heartbeat))
        return (yield from self._refused(call, heartbeat, outcome))

    def _ask(self, call: Call, heartbeat: Heartbeat) -> Steps[Outcome]:
        answer = self._process.promise()
        self._ledger.sent(call.receipt, heartbeat, answer)
        assert call.receipt.purchase is not None
        call.send = self._ledger.sends[call.receipt.purchase][-1]
        self.sent.append(call)
        outcome: Outcome = yield answer
        return outcome

    def _refused(self, call: Call, heartbeat: Heartbeat, outcome: Refused) -> Steps[Next]:
        step = self._after(call, outcome)
        lease, now_ms = heartbeat.lease, self._process.clock()
        if isinstance(step, RetryAt):
            reached, uses = outcome.reached, step.uses_attempt
            self._park(call, heartbeat, reached=reached, uses_attempt=uses)
            return step.delay_ms
        failure = Failure(step.kind, step.message)
        receipt = receipts.fail(call.receipt, lease.id, failure, now_ms, reached=outcome.reached)
        return (yield from self._settle(call, receipt, heartbeat))

    def _after(self, call: Call, outcome: Refused) -> RetryAt | GiveUp:
        return next_step(
            self._policy,
            attempts_used=call.receipt.attempts,
            outcome=outcome,
            elapsed_ms=self._process.clock() - call.opened_ms,
            chance=0.5,
            booked_before=call.receipt.sends > 0,
        )

    def _settle(self, call: Call, receipt: Receipt, heartbeat: Heartbeat) -> Steps[Next]:
        running, lease = call.receipt, heartbeat.lease
        if self._may_act(heartbeat):
            call.receipt = receipt
            try:
                yield self._owner.put(receipt)
                if self._may_act(heartbeat):
                    return "settled"
            except NotOwned:
                pass
            call.receipt = running
        yield self._owner.mail(Word("settle", receipt.key, receipt=receipt, id=lease.id))
        return "left"

    def _stored(self, call: Call) -> Receipt | None:
        stored = self._owner.get(call.receipt.key)
        return stored if stored and stored.purchase == call.receipt.purchase else None

    def _park(self, call: Call, heartbeat: Heartbeat, *, reached: bool, uses_attempt: bool) -> None:
        lease = heartbeat.lease
        call.receipt = receipts.park(
            call.receipt, lease.id, reached=reached, uses_attempt=uses_attempt
        )
        alive = self._owner.gate() and not heartbeat.expired
        if alive and self._claims.goes_on(call) and self._owner.epoch == lease.epoch:
            self._owner.put(call.receipt)

    def _may_act(self, heartbeat: Heartbeat) -> bool:
        return self._may_write(heartbeat.lease) and not heartbeat.expired

    def _may_write(self, lease: Lease) -> bool:
        return self._owner.owns and self._owner.gate() and self._owner.epoch == lease.epoch
