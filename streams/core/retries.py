"""After a send that gave no usable answer: send again, and when, or give up (Q5).

Rules, first match decides:

1. What may not help is not tried again: the failure stands.
2. What may have been booked is not sent again where the provider honours no idempotency key, or
   once the key's lifetime would be over: the outcome is unknown (INV10, INV11).
3. A 429, or a wait the provider asked for, uses up no attempt; everything else does.
4. Nobody waits past the call's deadline: a wait that ends behind it is a failure now.

The pause is the one asked for, else exponential backoff with full jitter: a random part of a ceiling
that doubles. Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: full
jitter needed the fewest calls, and the callers it delays together do not come back together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rowmill.streams.core.outcomes import FailureKind, Refused


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a call is sent again. Defaults: *Defaults* in behaviour.md.

    `attempts` >= 1, sends that may be used up. `idempotent`: the provider honours an idempotency
    key, for `key_lifetime_ms` from the purchase's first send.
    """

    attempts: int = 3
    backoff_ms: int = 500
    backoff_ms_max: int = 30_000
    deadline_ms: int = 900_000
    idempotent: bool = True
    key_lifetime_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Send again after `delay_ms` >= 1. `uses_attempt`: the send just made used one up."""

    delay_ms: int
    uses_attempt: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The call failed. `kind` and `message` are what receipt and user get."""

    kind: FailureKind
    message: str


def next_step(
    policy: RetryPolicy,
    attempts_used: int,
    outcome: Refused,
    elapsed_ms: int,
    chance: float,
    *,
    booked_before: bool = False,
) -> RetryAt | GiveUp:
    """Say what follows a refused send.

    Args: `attempts_used` >= 0, attempts used up before this send. `elapsed_ms` >= 0, since the
    purchase's first send. `chance`: random, in [0, 1). `booked_before`: an earlier send of this
    purchase may have been booked.
    """
    booked = outcome.maybe_booked or booked_before
    if outcome.maybe_booked and not policy.idempotent and outcome.kind.asked_again:
        return GiveUp(
            FailureKind.OUTCOME_UNKNOWN,
            f"{outcome.message}; sent once and not again, the provider honours no idempotency key",
        )
    if not outcome.retryable:
        return GiveUp(outcome.kind, outcome.message)
    if not outcome.waits and attempts_used + 1 >= policy.attempts:
        return GiveUp(outcome.kind, f"{outcome.message} ({_attempts(attempts_used + 1)})")
    delay_ms = _delay_ms(policy, attempts_used, outcome, elapsed_ms, chance)
    if booked and elapsed_ms + delay_ms >= policy.key_lifetime_ms:
        return GiveUp(
            FailureKind.OUTCOME_UNKNOWN,
            f"{outcome.message}; another send would come after the idempotency key's lifetime "
            f"of {_seconds(policy.key_lifetime_ms)}",
        )
    if elapsed_ms + delay_ms > policy.deadline_ms:
        return GiveUp(
            outcome.kind,
            f"{outcome.message}; the next send, in {_seconds(delay_ms)}, would come after the call's "
            f"deadline of {_seconds(policy.deadline_ms)}",
        )
    return RetryAt(delay_ms, uses_attempt=not outcome.waits)


def _delay_ms(
    policy: RetryPolicy, attempts_used: int, outcome: Refused, elapsed_ms: int, chance: float
) -> int:
    if outcome.retry_after_ms:
        return outcome.retry_after_ms
    # A wait uses up no attempt, so attempts alone would leave its ceiling at the bottom for 15
    # minutes; as high as the time already spent, it doubles too.
    waited_ms = elapsed_ms if outcome.waits else 0
    # 30 doublings of 1 ms are 12 days: more would only make large numbers.
    grown_ms = policy.backoff_ms << min(attempts_used, 30)
    ceiling_ms = min(policy.backoff_ms_max, max(grown_ms, waited_ms))
    return max(1, math.ceil(chance * ceiling_ms))


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:,.1f} s"
