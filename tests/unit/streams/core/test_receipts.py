"""The receipt's state machine: who owns, who is answered, what a death leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import (
    SENDS_ENDED_BY_DEATH_MAX,
    TOKENS_KEPT,
    Ask,
    Asker,
    Existing,
    Failure,
    IllegalTransition,
    Lease,
    Open,
    Owned,
    Receipt,
    claim,
    complete,
    fail,
    park,
    pick,
    release,
    start,
    take_over,
)

ASKER = Asker("run", 1, "row", "company")
OTHER_ROW = Asker("run", 1, "other row", "company")
OTHER_RUN = Asker("later run", 1, "row", "company")


def ask(asker: Asker = ASKER, **changes: object) -> Ask:
    plain = Ask("k", "t", "p", asker, now_wall_ms=1_000)
    return replace(plain, **changes)  # type: ignore[arg-type]  # tests name fields freely


def lease(id_: str = "a") -> Lease:
    return Lease(id_, epoch=1, instance="i", duration_ms=20_000)


def running(**changes: object) -> Receipt:
    opened, _ = claim(None, ask(), "purchase")
    return replace(start(pick(opened), lease(), 1_000), **changes)  # type: ignore[arg-type]


def completed(output: object = "answer") -> Receipt:
    return complete(running(), "a", output, now_wall_ms=2_000)


def failed(kind: FailureKind, asker: Asker = ASKER) -> Receipt:
    opened, _ = claim(None, ask(asker), "purchase")
    return fail(start(pick(opened), lease(), 1_000), "a", Failure(kind, "why"), 2_000, reached=True)


@pytest.mark.behaviour("R2")
def test_the_first_ask_owns_a_new_purchase() -> None:
    receipt, answer = claim(None, ask(cost=0.5), "purchase")
    assert answer == Owned()
    assert (receipt.state, receipt.purchase, receipt.asker, receipt.cost) == (
        "queued", "purchase", ASKER, 0.5,
    )  # fmt: skip


@pytest.mark.behaviour("R2")
def test_an_ask_for_an_open_receipt_waits() -> None:
    assert claim(running(), ask(OTHER_ROW), "unused")[1] == Open()


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("output", ["answer", None, [], 0])
def test_a_completed_receipt_answers_and_null_is_an_answer(output: object) -> None:
    stored = completed(output)
    receipt, answer = claim(stored, ask(OTHER_RUN), "unused")
    assert receipt is stored
    assert answer == Existing(reused=True)


@pytest.mark.behaviour("R2")
def test_a_replayed_row_gets_its_own_answer_and_it_is_not_counted_as_reused() -> None:
    replayed = replace(ASKER, life=2)
    assert claim(completed(), ask(replayed), "unused")[1] == Existing(reused=False)


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind.persisted])
def test_a_plain_ask_of_another_run_asks_again_only_where_the_kind_allows(
    kind: FailureKind,
) -> None:
    answer = claim(failed(kind), ask(OTHER_RUN), "second")[1]
    again = kind in {"transient", "unreachable", "out of credits", "lease lost", "cancelled"}
    assert answer == (Owned() if again else Existing(reused=True))


@pytest.mark.behaviour("R2")
def test_a_replayed_row_is_told_the_failure_it_was_told_before() -> None:
    stored = failed(FailureKind.TRANSIENT)
    assert claim(stored, ask(), "unused")[1] == Existing(reused=False)
    assert claim(stored, ask(OTHER_ROW), "second")[1] == Owned()


@pytest.mark.behaviour("R2")
def test_a_forced_ask_buys_once_per_token() -> None:
    receipt, answer = claim(completed(), ask(force="all", token="run:1"), "second")
    assert answer == Owned()
    assert receipt.purchase == "second"
    settled = complete(start(pick(receipt), lease(), 1_000), "a", "fresh", 3_000)
    assert claim(settled, ask(OTHER_ROW, force="all", token="run:1"), "no")[1] == Existing(True)
    assert claim(settled, ask(OTHER_ROW, force="all", token="run:2"), "third")[1] == Owned()


@pytest.mark.behaviour("R2")
def test_a_receipt_remembers_the_last_tokens_only() -> None:
    receipt: Receipt | None = None
    for number in range(TOKENS_KEPT + 4):
        opened, _ = claim(receipt, ask(force="all", token=f"run:{number}"), f"p{number}")
        receipt = complete(start(pick(opened), lease(), 1_000), "a", number, 3_000)
    assert receipt is not None
    assert receipt.tokens == tuple(f"run:{number}" for number in range(4, TOKENS_KEPT + 4))


@pytest.mark.behaviour("R2")
def test_force_failed_asks_failures_again_and_leaves_answers_alone() -> None:
    asked = ask(OTHER_RUN, force="failed", token="later run:1")
    assert claim(failed(FailureKind.PERMANENT), asked, "second")[1] == Owned()
    assert claim(completed(), asked, "unused")[1] == Existing(reused=True)


@pytest.mark.behaviour("R2")
def test_an_answer_older_than_stale_after_is_asked_again() -> None:
    fresh = ask(OTHER_RUN, stale_after_ms=500, now_wall_ms=2_500)
    stale = ask(OTHER_RUN, stale_after_ms=500, now_wall_ms=2_501)
    assert claim(completed(), fresh, "unused")[1] == Existing(reused=True)
    assert claim(completed(), stale, "second")[1] == Owned()


@pytest.mark.behaviour("Q7")
def test_retries_keep_the_purchase_and_count_what_reached_the_provider() -> None:
    tried = park(running(), "a", reached=True, uses_attempt=True)
    tried = park(start(pick(tried), lease("b"), 1_000), "b", reached=True, uses_attempt=False)
    tried = park(start(pick(tried), lease("c"), 1_000), "c", reached=False, uses_attempt=True)
    assert (tried.purchase, tried.sends, tried.attempts) == ("purchase", 2, 2)


@pytest.mark.behaviour("R6")
def test_only_the_present_lease_settles() -> None:
    receipt = running()
    with pytest.raises(IllegalTransition, match="another lease"):
        complete(receipt, "stale", "late", 2_000)
    with pytest.raises(IllegalTransition, match="another lease"):
        fail(receipt, "stale", Failure(FailureKind.TRANSIENT, ""), 2_000, reached=True)


@pytest.mark.behaviour("R6")
def test_a_completed_receipt_is_never_overwritten() -> None:
    with pytest.raises(IllegalTransition, match="is completed, not running"):
        complete(completed(), "a", "second answer", 3_000)


@pytest.mark.behaviour("R8")
def test_auth_scope_changed_is_never_persisted() -> None:
    with pytest.raises(IllegalTransition, match="never persisted"):
        fail(running(), "a", Failure(FailureKind.AUTH_SCOPE_CHANGED, ""), 2_000, reached=True)


@pytest.mark.behaviour("R11")
def test_an_unsent_claim_can_be_handed_back_and_a_sent_one_cannot() -> None:
    opened, _ = claim(None, ask(), "purchase")
    assert release(pick(opened)).state == "queued"
    with pytest.raises(IllegalTransition):
        release(running())


def after_death(receipt: Receipt, **changes: object) -> Receipt:
    known = {"idempotent": True, "key_lifetime_ms": 86_400_000, "now_wall_ms": 5_000}
    return take_over(receipt, **(known | changes))  # type: ignore[arg-type]


@pytest.mark.behaviour("Q7")
def test_a_call_cut_off_by_a_death_is_sent_again_under_the_same_purchase() -> None:
    taken = after_death(running())
    assert (taken.state, taken.purchase, taken.sends, taken.deaths) == ("queued", "purchase", 1, 1)


@pytest.mark.behaviour("Q7")
def test_the_third_death_of_a_purchase_ends_it_as_outcome_unknown() -> None:
    receipt = running()
    for _ in range(SENDS_ENDED_BY_DEATH_MAX - 1):
        receipt = start(pick(after_death(receipt)), lease(), 1_000)
    ended = after_death(receipt)
    assert ended.state == "failed"
    assert ended.failure == Failure(
        FailureKind.OUTCOME_UNKNOWN, "outcome unknown (worker died three times)"
    )


@pytest.mark.behaviour("Q7")
@pytest.mark.parametrize(
    "changes", [{"idempotent": False}, {"key_lifetime_ms": 3_999, "now_wall_ms": 5_000}]
)
def test_a_call_that_might_be_bought_twice_is_not_sent_again(changes: dict[str, object]) -> None:
    ended = after_death(running(), **changes)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.OUTCOME_UNKNOWN
    assert not ended.failure.kind.asked_again
