"""What follows a refused send."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowmill.streams.core.outcomes import FailureKind, Refused
from rowmill.streams.core.retries import GiveUp, RetryAt, RetryPolicy, next_step

POLICY = RetryPolicy()
NO_KEY = RetryPolicy(idempotent=False)

BROKEN = Refused(
    FailureKind.TRANSIENT, '500 "oops"', retryable=True, maybe_booked=True, reached=True
)
UNREACHED = Refused(
    FailureKind.UNREACHABLE, "refused", retryable=True, maybe_booked=False, reached=False
)
TOO_MANY = Refused(
    FailureKind.TRANSIENT,
    '429 "slow down"',
    retryable=True,
    maybe_booked=False,
    reached=True,
    retry_after_ms=120_000,
    waits=True,
)
UNKNOWN_NAME = Refused(
    FailureKind.PERMANENT, '422 "unknown"', retryable=False, maybe_booked=False, reached=True
)


@pytest.mark.behaviour("Q5")
def test_backoff_doubles_under_full_jitter() -> None:
    policy = replace(POLICY, attempts=20)
    waits = [next_step(policy, used, BROKEN, 0, chance=0.5) for used in (0, 1, 2, 3, 12)]
    assert waits == [RetryAt(ms, uses_attempt=True) for ms in (250, 500, 1_000, 2_000, 15_000)]
    assert next_step(policy, 0, BROKEN, 0, chance=0) == RetryAt(1, uses_attempt=True)


@pytest.mark.behaviour("Q5")
def test_attempts_are_bounded() -> None:
    assert isinstance(next_step(POLICY, 1, BROKEN, 0, 0.5), RetryAt)
    assert next_step(POLICY, 2, BROKEN, 0, 0.5) == GiveUp(
        FailureKind.TRANSIENT, '500 "oops" (3 attempts)'
    )
    assert next_step(POLICY, 2, UNREACHED, 0, 0.5) == GiveUp(
        FailureKind.UNREACHABLE, "refused (3 attempts)"
    )


@pytest.mark.behaviour("Q5")
def test_a_wait_that_was_asked_for_is_obeyed_and_uses_up_no_attempt() -> None:
    for used in (0, 2, 50):
        assert next_step(POLICY, used, TOO_MANY, 0, 0.9) == RetryAt(120_000, uses_attempt=False)


@pytest.mark.behaviour("Q5")
def test_refusals_without_a_wait_back_off_further_the_longer_they_last() -> None:
    """They use up no attempt, so attempts can't make the pause grow."""
    plain = replace(TOO_MANY, retry_after_ms=None)
    pauses = [next_step(POLICY, 0, plain, elapsed, 0.5) for elapsed in (0, 4_000, 16_000, 500_000)]
    assert pauses == [RetryAt(ms, uses_attempt=False) for ms in (250, 2_000, 8_000, 15_000)]


def test_come_back_at_once_is_no_hot_loop() -> None:
    at_once = replace(TOO_MANY, retry_after_ms=0)
    assert next_step(POLICY, 0, at_once, 0, 0.5) == RetryAt(250, uses_attempt=False)


@pytest.mark.behaviour("Q5")
def test_no_send_is_planned_behind_the_deadline() -> None:
    assert isinstance(next_step(POLICY, 0, TOO_MANY, 780_000, 0.5), RetryAt)
    step = next_step(POLICY, 0, TOO_MANY, 780_001, 0.5)
    assert isinstance(step, GiveUp)
    assert step.kind is FailureKind.TRANSIENT
    assert "in 120.0 s, would come after the call's deadline of 900.0 s" in step.message


@pytest.mark.behaviour("Q5")
def test_a_refusal_fails_at_once_with_the_providers_words() -> None:
    assert next_step(POLICY, 0, UNKNOWN_NAME, 0, 0.5) == GiveUp(
        FailureKind.PERMANENT, '422 "unknown"'
    )


@pytest.mark.behaviour("Q7")
def test_without_idempotency_nothing_is_sent_after_a_send_that_may_be_booked() -> None:
    for booked in (BROKEN, replace(BROKEN, retryable=False)):
        step = next_step(NO_KEY, 0, booked, 0, 0.5)
        assert isinstance(step, GiveUp)
        assert step.kind is FailureKind.OUTCOME_UNKNOWN
    for free in (UNREACHED, TOO_MANY):
        assert isinstance(next_step(NO_KEY, 0, free, 0, 0.5), RetryAt)


def test_without_idempotency_a_known_ending_keeps_its_kind() -> None:
    for kind in (FailureKind.TOO_LARGE, FailureKind.SECRET):
        refused = replace(BROKEN, kind=kind, retryable=False)
        assert next_step(NO_KEY, 0, refused, 0, 0.5) == GiveUp(kind, refused.message)


@pytest.mark.behaviour("Q7")
def test_no_send_is_planned_behind_the_keys_lifetime() -> None:
    """Stripe, for one, forgets a key after a day and then buys again."""
    policy = replace(POLICY, key_lifetime_ms=60_000)
    step = next_step(policy, 0, BROKEN, 59_999, 0.5)
    assert isinstance(step, GiveUp)
    assert step.kind is FailureKind.OUTCOME_UNKNOWN
    assert isinstance(next_step(policy, 0, TOO_MANY, 0, 0.5), RetryAt)
    late = next_step(policy, 0, TOO_MANY, 0, 0.5, booked_before=True)
    assert isinstance(late, GiveUp)
    assert late.kind is FailureKind.OUTCOME_UNKNOWN
