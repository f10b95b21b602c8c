"""What came of one send, and why calls fail: the words that user, receipts and retries share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FailureKind(StrEnum):
    """Why a call failed, as the user sees it (R8). Which are asked again by a plain run: R2."""

    PERMANENT = "permanent"
    """The provider refused: its words say why. Asked again only by a forced ask."""
    TRANSIENT = "transient"
    """Retries are used up (5xx, transport, time-out, unusable answer). A rerun asks again."""
    UNREACHABLE = "unreachable"
    """No connection could be made: nothing was sent. A rerun asks again."""
    OUT_OF_CREDITS = "out of credits"
    """402, or a quota's end in a 429 body. A rerun asks again."""
    OUTCOME_UNKNOWN = "outcome unknown"
    """Sent, perhaps booked, no answer, and another send might buy it twice."""
    LEASE_LOST = "lease lost"
    CANCELLED = "cancelled"
    TOO_LARGE = "answer too large"
    """Paid for, but above the limit: permanent, the value is not kept (R9)."""
    SECRET = "carries a secret"
    """Paid for, but it holds a secret: permanent, the value is not kept (R10)."""
    AUTH_SCOPE_CHANGED = "auth scope changed"
    """Never persisted (R8)."""
    STILL_RUNNING = "still running elsewhere"
    """The wait for somebody else's call ran out (R5). Of the one who waited, never of a receipt."""

    @property
    def persisted(self) -> bool:
        """True for a kind that a receipt may end with."""
        return self not in (FailureKind.AUTH_SCOPE_CHANGED, FailureKind.STILL_RUNNING)

    @property
    def asked_again(self) -> bool:
        """True where a plain rerun asks the provider again (R2)."""
        return self in (
            FailureKind.TRANSIENT,
            FailureKind.UNREACHABLE,
            FailureKind.OUT_OF_CREDITS,
            FailureKind.LEASE_LOST,
            FailureKind.CANCELLED,
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """The provider answered with a usable JSON value, `size_bytes` long as it came."""

    output: Any
    size_bytes: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Refused:
    """One send that gave no usable answer.

    `kind`: what the failure is if nobody tries again. `retryable`: another send may help.
    `maybe_booked`: the provider may have acted on it. `retry_after_ms`: what the provider asked for
    (already bounded), None where it did not; `waits`: a 429 or an asked-for wait, which uses up no
    attempt (Q5). `message`: the provider's words or the reason, without control characters.
    `reached`: the request reached the provider (it counts as a call).
    """

    kind: FailureKind
    message: str
    retryable: bool
    maybe_booked: bool
    reached: bool
    status_code: int | None = None
    retry_after_ms: int | None = None
    waits: bool = False
    latency_ms: float = 0

    @property
    def slows(self) -> bool:
        """True for what says that less at a time would be better: a wait, or no answer in time."""
        return self.waits or (self.retryable and self.reached and self.status_code is None)


Outcome = Answered | Refused

LEASE_LOST = Refused(
    kind=FailureKind.LEASE_LOST,
    message="lease lost: its renewal could not be written in time",
    retryable=True,
    maybe_booked=True,
    reached=True,
)
"""The call was cut off by its own worker: a successor may send already (R4)."""


def never_built(reason: str) -> Refused:
    """Return what came of a call that could not be sent at all, as a secret is missing."""
    return Refused(
        kind=FailureKind.TRANSIENT,
        message=reason,
        retryable=False,
        maybe_booked=False,
        reached=False,
    )
