"""The model: what the provider saw and what rows were told, and the rules that both must keep.

R2 and "pay once" are written down here a second time, from `docs/behaviour.md` and not from the code.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rowmill.streams.core.identity import idempotency_key
from rowmill.streams.core.outcomes import FailureKind, Outcome, Refused
from rowmill.streams.core.receipts import SENDS_ENDED_BY_DEATH_MAX, Ask, Lease, Receipt
from tests.property.receipts.broker import Request
from tests.property.receipts.process import Process, Promise

LEASE_MS = 20_000
LEASE_KEPT_MS = LEASE_MS * 0.95
"""As in dispatch/heartbeat.py: 5 % are given away for clocks that do not run alike."""

MENDED_BY_ASKING = {
    FailureKind.TRANSIENT,
    FailureKind.UNREACHABLE,
    FailureKind.OUT_OF_CREDITS,
    FailureKind.LEASE_LOST,
    FailureKind.CANCELLED,
}


@dataclass
class Heartbeat:
    """One lease as its process sees it. `confirmed_ms`: sending time of the last confirmed beat."""

    lease: Lease
    process: Process
    confirmed_ms: int
    beating: bool = False

    @property
    def expired(self) -> bool:
        """True where nobody may send or settle under this lease any more."""
        return self.process.clock() - self.confirmed_ms >= LEASE_KEPT_MS


@dataclass(eq=False)
class Send:
    """One request that reached the provider. `outcome`: what its process heard of it."""

    purchase: str
    idempotency_key: str
    heartbeat: Heartbeat
    answer: Promise
    outcome: Outcome | None = None
    died: bool = False

    @property
    def may_be_repeated(self) -> bool:
        """True where its process told it to fail for now, died over it, or lost its lease."""
        told = isinstance(self.outcome, Refused) and self.outcome.retryable
        return told or self.died or self.heartbeat.expired

    @property
    def ended(self) -> bool:
        """True where its process needs no answer any more."""
        return self.outcome is not None or self.died or self.heartbeat.expired

    @property
    def not_booked(self) -> bool:
        """True where the provider surely did nothing."""
        return isinstance(self.outcome, Refused) and not self.outcome.maybe_booked


@dataclass
class Ledger:
    """Books of one key space. `idempotent`: whether the provider honours idempotency keys."""

    idempotent: bool
    sends: defaultdict[str, list[Send]] = field(default_factory=lambda: defaultdict(list))
    opened: dict[str, tuple[Ask, Receipt | None]] = field(default_factory=dict)
    told: defaultdict[str, dict[str, Receipt]] = field(default_factory=lambda: defaultdict(dict))
    bought_for: dict[tuple[str, str], str] = field(default_factory=dict)

    def claimed(self, stored: Receipt | None, ask: Ask, opened: str | None) -> None:
        """Take note of a claim on what nobody has open, and of the purchase it opened."""
        assert (opened is not None) == opens(stored, ask), f"R2: {ask} on {stored}"
        if opened is not None:
            self.opened[opened] = (ask, stored)

    def sent(self, receipt: Receipt, heartbeat: Heartbeat, answer: Promise) -> None:
        """A request reaches the provider."""
        assert receipt.purchase is not None
        assert receipt.state == "running"
        sends = self.sends[receipt.purchase]
        if not sends:
            self._bought(receipt.key, receipt.purchase)
        key = idempotency_key(receipt.key, receipt.purchase)
        for earlier in sends:
            assert earlier.may_be_repeated, "sent again while an earlier send is open or answered"
            assert self.idempotent or earlier.not_booked, "a blind second send"
            assert earlier.idempotency_key == key
        deaths = sum(earlier.died and earlier.outcome is None for earlier in sends)
        assert deaths < SENDS_ENDED_BY_DEATH_MAX, "sent again after too many deaths"
        sends.append(Send(receipt.purchase, key, heartbeat, answer))

    def _bought(self, key: str, purchase: str) -> None:
        """A purchase is sent first: the claim knew all that rows had been told (R2)."""
        ask, stored = self.opened[purchase]
        for former, receipt in self.told[key].items():
            assert stored is not None, "bought as if nothing were known"
            assert stored.purchase is not None
            assert order(former) <= order(stored.purchase), "bought on old knowledge"
            if former == stored.purchase and receipt.state == "completed":
                assert stored.state == "completed"
        if ask.token is not None:
            bought = self.bought_for.setdefault((key, ask.token), purchase)
            assert bought == purchase, "one command bought a question twice"

    def answered(self, request: Request, receipt: Receipt) -> None:
        """A row is told: from a final receipt, and what was completed is told alike for ever."""
        assert receipt.final
        assert receipt.purchase is not None
        before = self.told[receipt.key].get(receipt.purchase)
        if before is not None and before.state == "completed":
            assert receipt == before, "two answers of one purchase"
        if receipt.state == "failed":
            for send in self.sends[receipt.purchase]:
                assert send.ended, "failed while a later send was open"
        self.told[receipt.key][receipt.purchase] = receipt
        if request.force == "all" or (request.force and receipt.state == "failed"):
            assert request.token in receipt.tokens, "a forced ask joined an older purchase"

    def died(self, process: Process) -> None:
        """The connections of a killed process are cut."""
        for sends in self.sends.values():
            for send in sends:
                send.died = send.died or send.heartbeat.process is process


def opens(stored: Receipt | None, ask: Ask) -> bool:
    """Say whether a claim opens a purchase, as R2 words it."""
    if stored is None:
        return True
    if ask.token is not None and ask.token in stored.tokens:
        return False
    if ask.force == "all":
        return True
    if stored.state == "completed":
        assert stored.settled_wall_ms is not None
        age_ms = ask.now_wall_ms - stored.settled_wall_ms
        return ask.stale_after_ms is not None and age_ms > ask.stale_after_ms
    assert stored.failure is not None
    assert stored.asker is not None
    if ask.force == "failed":
        return True
    return stored.failure.kind in MENDED_BY_ASKING and not stored.asker.same_question(ask.asker)


def order(purchase: str) -> int:
    """Return the place of a purchase among all claims."""
    return int(purchase[1:])
