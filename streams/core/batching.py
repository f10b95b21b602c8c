"""Batches: many questions in one request, and each member's own answer found in what comes back (Q2).

A batch is itself a receipt: its lease, purchase and idempotency key, its retries and takeovers are those
of any call. Its members are receipts that name it in `batch` until it has an answer for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rowmill.streams.core.identity import canonical
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Failure, Receipt

KEY_PREFIX = "batch-"
"""Of the receipt key of a batch: keys of questions are digests."""

RETRYABLE = (408, 425, 429)
"""Statuses below 500 that a later send may mend, as for a whole call."""

AGAIN_MS = 1_000
"""A member that may be asked again waits so long where its answer does not say."""

WAIT_S_MAX = 900
"""Longest wait that a member's answer may ask for, as for a whole call."""

Question = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """How members stand in a batch's request, and answers in its response.

    `members`: field of the request that holds them. One of three says whose an answer is: `match`, a
    field of the question that the answer repeats (or, where answers are an object, their keys);
    `echo`, a field in which each member gets its receipt key and its answer repeats that; neither:
    the place. `answers`: field of the response that holds the answers; None: the response is a list or
    an object with one. `answer`: field of an answer that is the member's; None: all of it. `error`:
    field in which an answer says that there is none; `status`: field with a status of its own, as of
    HTTP, and `retry_after`: one with the seconds after which to ask again.
    """

    members: str
    match: str | None = None
    echo: str | None = None
    answers: str | None = None
    answer: str | None = None
    error: str | None = None
    status: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A member's answer; None may be one."""

    output: Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """The provider's words on one member: it has no answer for it."""

    message: str


@dataclass(frozen=True, slots=True)
class Again:
    """The provider could not answer this member now: it goes into another batch, after `after_ms`."""

    reason: str
    after_ms: int
    uses_attempt: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no answer that is surely this member's. `reason` for people."""

    reason: str


Answer = Found | Refusal | Again | Missing


def identity(layout: Layout, key: str, question: Question) -> str:
    """Return what tells a member from others in one batch. `key`: its receipt's."""
    if layout.match is None:
        return key
    return canonical(question.get(layout.match)).decode()


def request(layout: Layout, members: Sequence[tuple[str, Question]]) -> dict[str, Any]:
    """Return a batch's request: members (receipt key, question) in their order.

    A member is written as the value of the field that it is matched by where that is all its question
    holds, else as its whole question.
    """
    return {layout.members: [_written(layout, key, question) for key, question in members]}


def answers_of(
    layout: Layout, members: Sequence[tuple[str, Question]], response: Any
) -> dict[str, Answer]:
    """Find each member's own answer, by receipt key; never somebody else's."""
    answers = _answers_in(layout, response)
    if answers is None:
        where = f'"{layout.answers}"' if layout.answers else "a list"
        return {key: Missing(f"the batch's response has no {where}") for key, _ in members}
    if layout.match is None and layout.echo is None:
        if not isinstance(answers, list) or len(answers) != len(members):
            reason = f"{len(answers)} answers for {len(members)} members, matched by place"
            return {key: Missing(reason) for key, _ in members}
        return {
            key: _read(layout, answer) for (key, _), answer in zip(members, answers, strict=True)
        }
    known = _by_identity(layout, answers)
    found: dict[str, Answer] = {}
    for key, question in members:
        name = canonical(key).decode() if layout.echo else identity(layout, key, question)
        said = known.get(name, [])
        if len({canonical(each) for each in said}) > 1:
            found[key] = Missing(f"the batch's response has {len(said)} answers for it")
        else:
            found[key] = _read(layout, said[0]) if said else Missing("no answer in its batch")
    return found


def settled(receipt: Receipt, found: Answer, attempts: int, now_wall_ms: int) -> Receipt:
    """Return a member after its batch was answered: final, or queued to be asked again.

    `attempts`: how many it may use up; a missing answer uses one.
    """
    if isinstance(found, Again) and not found.uses_attempt:
        return replace(receipt, batch=None, sends=receipt.sends + 1)
    member = replace(receipt, batch=None, sends=receipt.sends + 1, attempts=receipt.attempts + 1)
    match found:
        case Found(output):
            return replace(
                member, state="completed", output=output, failure=None, settled_wall_ms=now_wall_ms
            )
        case Refusal(message):
            return _failed(member, Failure(FailureKind.PERMANENT, message), now_wall_ms)
        case Missing(reason) | Again(reason):
            if member.attempts < attempts:
                return member
            return _failed(member, Failure(FailureKind.TRANSIENT, reason), now_wall_ms)


def failed_with(receipt: Receipt, batch: Receipt, now_wall_ms: int) -> Receipt:
    """Return a member whose batch failed as a whole."""
    assert batch.failure is not None
    member = replace(receipt, batch=None, sends=receipt.sends + batch.sends, deaths=batch.deaths)
    return _failed(member, batch.failure, now_wall_ms)


def left_alone(receipt: Receipt) -> Receipt:
    """Return a member whose batch the provider refused for what stands in it: it is asked alone."""
    return replace(receipt, batch=None)


def _failed(receipt: Receipt, failure: Failure, now_wall_ms: int) -> Receipt:
    return replace(
        receipt, state="failed", output=None, failure=failure, settled_wall_ms=now_wall_ms
    )


def _written(layout: Layout, key: str, question: Question) -> Any:
    if layout.echo is not None:
        return {**question, layout.echo: key}
    if layout.match is not None and set(question) == {layout.match}:
        return question[layout.match]
    return dict(question)


def _answers_in(layout: Layout, response: Any) -> list[Any] | dict[str, Any] | None:
    if layout.answers is not None:
        response = response.get(layout.answers) if isinstance(response, dict) else None
        return response if isinstance(response, list | dict) else None
    if isinstance(response, list):
        return response
    if not isinstance(response, dict):
        return None
    lists = [value for value in response.values() if isinstance(value, list)]
    return lists[0] if len(lists) == 1 else None


def _by_identity(layout: Layout, answers: list[Any] | dict[str, Any]) -> dict[str, list[Any]]:
    known: dict[str, list[Any]] = {}
    if isinstance(answers, dict):
        for name, answer in answers.items():
            known.setdefault(canonical(name).decode(), []).append(answer)
        return known
    field = layout.echo or layout.match or ""
    for answer in answers:
        if isinstance(answer, dict) and field in answer:
            known.setdefault(canonical(answer[field]).decode(), []).append(answer)
    return known


def _read(layout: Layout, answer: Any) -> Answer:
    if not isinstance(answer, dict):
        return Found(answer)
    if layout.status is not None and (said := _by_status(layout, answer)) is not None:
        return said
    if layout.error is not None and answer.get(layout.error) not in (None, False, ""):
        return Refusal(f"refused in its batch: {_words(answer[layout.error])}")
    if layout.answer is None:
        return Found(answer)
    if layout.answer not in answer:
        return Missing(f'its answer has no "{layout.answer}"')
    return Found(answer[layout.answer])


def _by_status(layout: Layout, answer: dict[str, Any]) -> Refusal | Again | Missing | None:
    """Judge an answer by its own status; None where it is a success."""
    status = answer.get(layout.status or "")
    if isinstance(status, bool) or not isinstance(status, int):
        return Missing(f'its answer has no whole number in "{layout.status}"')
    if 200 <= status < 300:
        return None
    words = f"{status} in its batch: {_words(answer.get(layout.error or '', answer))}"
    if status not in RETRYABLE and status < 500:
        return Refusal(words)
    asked_s = answer.get(layout.retry_after) if layout.retry_after is not None else None
    known = isinstance(asked_s, int | float) and 0 <= asked_s <= WAIT_S_MAX
    after_ms = round(asked_s * 1000) if known and asked_s is not None else AGAIN_MS
    return Again(words, after_ms, uses_attempt=status != 429)


def _words(error: Any) -> str:
    text = error if isinstance(error, str) else canonical(error).decode()
    return "".join(char if char.isprintable() else " " for char in text)[:500]
