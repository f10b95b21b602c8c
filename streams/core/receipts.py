"""The receipt: the durable record of one question, as a state machine (R1-R3, R8, Q7).

    queued --pick--> pending --start--> running --settle--> completed | failed | skipped
      ^                 |                  |
      '---- release ----'<---- park -------'        final --claim (asked again)--> queued

queued    waits, no lease. pending  picked, waits for slot and permit, in memory only.
running   lease and purchase acknowledged, may be sent. The others are final.

A *purchase* is one paid question: its random id is written with the claim that opens it and stays
over retries and takeovers, so every send of it carries one idempotency key. Nothing here reads a
clock or makes a random id: both are passed in. Every transition returns a new receipt; an illegal
one raises IllegalTransition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from rowmill.streams.core.outcomes import FailureKind

State = Literal["queued", "pending", "running", "completed", "failed", "skipped"]

TOKENS_KEPT = 16
"""Force tokens a receipt remembers (R2): a replay of a forced run is answered, not bought again."""

CHUNK_KEYS = 1_000
"""Receipts asked for, or deleted, at once (R7)."""

SENDS_ENDED_BY_DEATH_MAX = 3
"""Sends of one purchase that may end in their worker's death; then the outcome is unknown."""


class IllegalTransition(Exception):
    """A transition that no correct caller makes: a bug, or a stale owner. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may send, and for how long without a heartbeat. `epoch` and `id` fence (point 3)."""

    id: str
    epoch: int
    instance: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose question it was: the spend is booked on the run that opened the purchase (Q4).

    `command`: number of the run's command; a row that runs again under a later one finds what it
    bought before as reused, or its spend would be counted twice.
    """

    run: str
    life: int
    row: str
    call: str
    command: int = 0

    def same_question(self, other: Asker) -> bool:
        """True for the same call of the same row and command of a run, in whichever life."""
        return self._question == other._question

    @property
    def _question(self) -> tuple[str, int, str, str]:
        return (self.run, self.command, self.row, self.call)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed, as it is persisted and shown (R8)."""

    kind: FailureKind
    message: str
    status_code: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """One question and what is known of it. Times ending in `_wall_ms` are for people, but for the
    age of an idempotency key: no other clock outlives a process.

    `sends`: requests of this purchase that reached the provider, as far as known. `attempts`: those
    that used up an attempt (a 429 does not). `deaths`: sends cut off by their worker's death.
    `wake_wall_ms`: where parked, when to go on. `job`: the provider's job id. `batch`: key of the
    batch's receipt that this question is in; `members`: of a batch, its (receipt key, question)s.
    """

    key: str
    tool: str
    provider: str
    state: State = "queued"
    asker: Asker | None = None
    purchase: str | None = None
    lease: Lease | None = None
    sends: int = 0
    attempts: int = 0
    deaths: int = 0
    output: Any = None
    failure: Failure | None = None
    cost: float = 0
    tokens: tuple[str, ...] = ()
    job: str | None = None
    opened_wall_ms: int = 0
    first_sent_wall_ms: int | None = None
    settled_wall_ms: int | None = None
    wake_wall_ms: int | None = None
    batch: str | None = None
    members: tuple[tuple[str, dict[str, Any]], ...] = ()

    @property
    def final(self) -> bool:
        """True where the receipt answers."""
        return self.state in ("completed", "failed", "skipped")

    def settled_before(self, wall_ms: int) -> bool:
        """True where it is final and became so before that time."""
        return self.final and self.settled_wall_ms is not None and self.settled_wall_ms < wall_ms


@dataclass(frozen=True, slots=True)
class Ask:
    """One claim on a receipt. `force` and its token as in R2; `stale_after_ms`: an older answer is
    asked again; `now_wall_ms` decides staleness only."""

    key: str
    tool: str
    provider: str
    asker: Asker
    now_wall_ms: int
    force: Literal["all", "failed"] | None = None
    token: str | None = None
    stale_after_ms: int | None = None
    cost: float = 0


def joins(receipt: Receipt, ask: Ask) -> bool:
    """Say whether an ask may share the answer of an open receipt (Q4).

    A forced one may not, unless its own command opened the purchase: it waits for the older one to
    end, and is claimed then (R2).
    """
    return ask.force is None or (ask.token is not None and ask.token in receipt.tokens)


@dataclass(frozen=True, slots=True)
class Owned:
    """This ask opened (or took back) the purchase: it is to be sent."""


@dataclass(frozen=True, slots=True)
class Existing:
    """The receipt is final: its output or failure is the answer and no call is made."""

    reused: bool


@dataclass(frozen=True, slots=True)
class Open:
    """Somebody's purchase is open: wait for it."""


def claim(
    stored: Receipt | None, ask: Ask, purchase: str
) -> tuple[Receipt, Owned | Existing | Open]:
    """Say whether `ask` is answered, must wait, or owns a new purchase (R2).

    Args: `purchase`: a fresh random id, used only if a new purchase opens.
    """
    if stored is None:
        return _opened(Receipt(ask.key, ask.tool, ask.provider), ask, purchase), Owned()
    if not stored.final:
        return stored, Open()
    if _answers(stored, ask):
        mine = stored.asker is not None and stored.asker.same_question(ask.asker)
        return stored, Existing(reused=not mine)
    return _opened(stored, ask, purchase), Owned()


def _opened(receipt: Receipt, ask: Ask, purchase: str) -> Receipt:
    tokens = receipt.tokens
    if ask.token is not None:
        tokens = (*tokens, ask.token)[-TOKENS_KEPT:]
    return Receipt(
        key=ask.key,
        tool=ask.tool,
        provider=ask.provider,
        asker=ask.asker,
        purchase=purchase,
        cost=ask.cost,
        tokens=tokens,
        opened_wall_ms=ask.now_wall_ms,
    )


def _answers(receipt: Receipt, ask: Ask) -> bool:
    if ask.token is not None and ask.token in receipt.tokens:
        return True
    if ask.force == "all":
        return False
    if receipt.state == "failed":
        return not _asked_again(receipt, ask)
    if ask.stale_after_ms is None or receipt.settled_wall_ms is None:
        return True
    return ask.now_wall_ms - receipt.settled_wall_ms <= ask.stale_after_ms


def _asked_again(receipt: Receipt, ask: Ask) -> bool:
    """A replayed row gets the failure it got before; any other plain ask may ask again (R2)."""
    if ask.force == "failed":
        return True
    if receipt.asker is not None and receipt.asker.same_question(ask.asker):
        return False
    return receipt.failure is None or receipt.failure.kind.asked_again


def pick(receipt: Receipt) -> Receipt:
    """Take a queued receipt to wait for slot and permit; in memory only (R1)."""
    _expect(receipt, "queued")
    return replace(receipt, state="pending", wake_wall_ms=None)


def start(receipt: Receipt, lease: Lease, now_wall_ms: int) -> Receipt:
    """Return the receipt to make durable before a request leaves (R3)."""
    _expect(receipt, "pending")
    first_ms = receipt.first_sent_wall_ms
    return replace(
        receipt,
        state="running",
        lease=lease,
        first_sent_wall_ms=now_wall_ms if first_ms is None else first_ms,
    )


def park(receipt: Receipt, lease_id: str, *, reached: bool, uses_attempt: bool) -> Receipt:
    """Book a send that gave no answer and may be tried again: back to queued, purchase kept (Q6)."""
    _expect_lease(receipt, lease_id)
    sends = receipt.sends + reached
    return replace(
        receipt,
        state="queued",
        lease=None,
        sends=sends,
        attempts=receipt.attempts + uses_attempt,
        first_sent_wall_ms=receipt.first_sent_wall_ms if sends else None,
    )


def complete(receipt: Receipt, lease_id: str, output: Any, now_wall_ms: int) -> Receipt:
    """Settle with the provider's answer, `None` included: a completed null is an answer."""
    _expect_lease(receipt, lease_id)
    return replace(
        receipt,
        state="completed",
        lease=None,
        sends=receipt.sends + 1,
        attempts=receipt.attempts + 1,
        output=output,
        failure=None,
        settled_wall_ms=now_wall_ms,
    )


def fail(
    receipt: Receipt, lease_id: str, failure: Failure, now_wall_ms: int, *, reached: bool
) -> Receipt:
    """Settle as failed. Raises: IllegalTransition for a kind that is never persisted (R8)."""
    _expect_lease(receipt, lease_id)
    if not failure.kind.persisted:
        raise IllegalTransition(f"receipt {receipt.key}: {failure.kind} is never persisted")
    return replace(
        receipt,
        state="failed",
        lease=None,
        sends=receipt.sends + reached,
        attempts=receipt.attempts + reached,
        output=None,
        failure=failure,
        settled_wall_ms=now_wall_ms,
    )


def settle_late(receipt: Receipt, settled: Receipt, lease_id: str) -> Receipt | None:
    """Return the receipt after a settlement that a former owner sent, None where it changes nothing.

    A late answer of the same purchase settles whatever is open, or failed in a way that another ask
    may mend (R6): it was paid for. A late refusal settles only the lease it was sent under: once
    somebody sent again, that send's outcome counts. A completed receipt is never overwritten.
    """
    if settled.purchase != receipt.purchase or not settled.final:
        return None
    known = receipt.failure
    open_to_answers = not receipt.final or (
        known is not None and (known.kind.asked_again or known.kind is FailureKind.OUTCOME_UNKNOWN)
    )
    same_lease = receipt.lease is not None and receipt.lease.id == lease_id
    if settled.state != "completed" and not (receipt.state == "running" and same_lease):
        return None
    if not open_to_answers:
        return None
    return replace(
        receipt,
        state=settled.state,
        lease=None,
        batch=None,
        sends=max(receipt.sends, settled.sends),
        attempts=max(receipt.attempts, settled.attempts),
        output=settled.output,
        failure=settled.failure,
        settled_wall_ms=settled.settled_wall_ms,
    )


def outlive_key(receipt: Receipt, now_wall_ms: int) -> Receipt:
    """Fail a parked purchase whose key its provider may honour no longer: a send might buy again."""
    _expect(receipt, "queued")
    reason = "its idempotency key is too old to be sent again"
    return replace(
        receipt,
        state="failed",
        failure=Failure(FailureKind.OUTCOME_UNKNOWN, f"outcome unknown ({reason})"),
        settled_wall_ms=now_wall_ms,
    )


def release(receipt: Receipt) -> Receipt:
    """Hand back a claim that was never sent under this lease (R11)."""
    _expect(receipt, "queued", "pending")
    return replace(receipt, state="queued", lease=None)


def usable_key_ms(key_lifetime_ms: int) -> int:
    """Return for how long after its first send a key is used: 95 % of its lifetime.

    The rest is given away for clocks: the age of a key outlives its sender on the wall clock only, and
    who takes its call over has another one (tests/simulation, seed 87140: 38 ms too late).
    """
    return key_lifetime_ms * 95 // 100


def take_over(
    receipt: Receipt, *, idempotent: bool, key_lifetime_ms: int, now_wall_ms: int
) -> Receipt:
    """Return what becomes of a running receipt whose owner died between sending and settling.

    The purchase is sent again under the same key (queued), unless that may buy it twice: a tool
    without idempotency, a key older than its provider honours it, or too many deaths. Then it fails
    as "outcome unknown". The caller has proven that the owner is gone (same instance, or the lease
    waited out in full).
    """
    _expect(receipt, "running")
    died = replace(receipt, lease=None, sends=receipt.sends + 1, deaths=receipt.deaths + 1)
    first_ms = receipt.first_sent_wall_ms
    age_ms = now_wall_ms - (receipt.opened_wall_ms if first_ms is None else first_ms)
    reason = None
    if not idempotent:
        reason = "the worker died while the call was open, and this tool has no idempotency"
    elif age_ms >= usable_key_ms(key_lifetime_ms):
        reason = "the worker died while the call was open, and its idempotency key is too old"
    elif died.deaths >= SENDS_ENDED_BY_DEATH_MAX:
        reason = "worker died three times"
    if reason is None:
        return replace(died, state="queued")
    return replace(
        died,
        state="failed",
        failure=Failure(FailureKind.OUTCOME_UNKNOWN, f"outcome unknown ({reason})"),
        settled_wall_ms=now_wall_ms,
    )


def _expect(receipt: Receipt, *states: State) -> None:
    if receipt.state not in states:
        raise IllegalTransition(
            f"receipt {receipt.key} is {receipt.state}, not {' or '.join(states)}"
        )


def _expect_lease(receipt: Receipt, lease_id: str) -> None:
    _expect(receipt, "running")
    if receipt.lease is None or receipt.lease.id != lease_id:
        raise IllegalTransition(f"receipt {receipt.key} is running under another lease")
