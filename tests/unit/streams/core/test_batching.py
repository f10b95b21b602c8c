"""Whose an answer is: never somebody else's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rowmill.streams.core.batching import (
    Found,
    Layout,
    Missing,
    Refusal,
    answers_of,
    failed_with,
    identity,
    left_alone,
    request,
    settled,
)
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Failure, Receipt

BY_FIELD = Layout("symbols", match="symbol")
BY_ECHO = Layout("items", echo="ref", answer="result", error="error")
BY_PLACE = Layout("q")
MEMBERS: list[tuple[str, dict[str, Any]]] = [("k1", {"symbol": "A"}), ("k2", {"symbol": "B"})]


def test_a_member_is_its_field_where_that_is_all_and_else_its_whole_question() -> None:
    assert request(BY_FIELD, MEMBERS) == {"symbols": ["A", "B"]}
    wide = [("k1", {"symbol": "A", "year": 2020})]
    assert request(BY_FIELD, wide) == {"symbols": [{"symbol": "A", "year": 2020}]}
    assert request(BY_ECHO, MEMBERS) == {
        "items": [{"symbol": "A", "ref": "k1"}, {"symbol": "B", "ref": "k2"}]
    }
    assert request(BY_PLACE, MEMBERS) == {"q": [{"symbol": "A"}, {"symbol": "B"}]}


@pytest.mark.parametrize(
    "response",
    [
        [{"symbol": "B", "n": 2}, {"symbol": "A", "n": 1}],
        {"results": [{"symbol": "B", "n": 2}, {"symbol": "A", "n": 1}], "took": 3},
        {"results": [{"symbol": "C", "n": 9}, {"symbol": "A", "n": 1}, {"symbol": "B", "n": 2}]},
    ],
)
def test_swapped_and_foreign_answers_reach_nobody_else(response: Any) -> None:
    found = answers_of(BY_FIELD, MEMBERS, response)
    assert found == {
        "k1": Found({"symbol": "A", "n": 1}), "k2": Found({"symbol": "B", "n": 2}),
    }  # fmt: skip


def test_answers_that_are_an_object_are_matched_by_its_names_and_null_is_an_answer() -> None:
    layout = replace(BY_FIELD, answers="found")
    found = answers_of(layout, MEMBERS, {"found": {"B": None, "A": {"n": 1}}})
    assert found == {"k1": Found({"n": 1}), "k2": Found(None)}


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ([{"symbol": "A"}], "no answer in its batch"),
        ([{"symbol": "A"}, {"symbol": "B", "n": 1}, {"symbol": "B", "n": 2}], "2 answers"),
        ([{"symbol": "A"}, {"n": 1}, None, 3], "no answer in its batch"),
        ([{"symbol": "A"}, {"symbol": "b"}], "no answer in its batch"),
    ],
)
def test_what_is_not_surely_a_members_is_missing(response: Any, reason: str) -> None:
    found = answers_of(BY_FIELD, MEMBERS, response)
    assert found["k1"] == Found({"symbol": "A"})
    missing = found["k2"]
    assert isinstance(missing, Missing)
    assert reason in missing.reason


@pytest.mark.parametrize("response", [None, 3, "text", {}, {"a": [], "b": []}, {"results": 5}])
def test_a_response_without_answers_leaves_all_missing(response: Any) -> None:
    for layout in (BY_FIELD, BY_ECHO, BY_PLACE):
        found = answers_of(layout, MEMBERS, response)
        assert {type(each) for each in found.values()} == {Missing}


def test_by_place_every_member_has_an_answer_or_none_has() -> None:
    assert answers_of(BY_PLACE, MEMBERS, [1, 2]) == {"k1": Found(1), "k2": Found(2)}
    for response in ([1], [1, 2, 3], {"r": [1]}):
        found = answers_of(BY_PLACE, MEMBERS, response)
        assert {type(each) for each in found.values()} == {Missing}


def test_an_echoed_key_finds_its_member_and_a_refusal_is_that_members_alone() -> None:
    response = [
        {"ref": "k2", "error": {"code": 7, "text": "un\x07known"}},
        {"ref": "k1", "result": None, "error": None},
    ]
    found = answers_of(BY_ECHO, MEMBERS, response)
    assert found["k1"] == Found(None)
    refusal = found["k2"]
    assert isinstance(refusal, Refusal)
    assert refusal.message == 'refused in its batch: {"code":7,"text":"un\\u0007known"}'
    found = answers_of(BY_ECHO, MEMBERS, [{"ref": "k1"}, {"ref": "k2", "result": 1}])
    assert found["k1"] == Missing('its answer has no "result"')


def test_members_with_one_identity_can_not_be_told_apart() -> None:
    one, other = {"symbol": "A", "year": 1}, {"symbol": "A", "year": 2}
    assert identity(BY_FIELD, "k1", one) == identity(BY_FIELD, "k2", other)
    assert identity(BY_ECHO, "k1", one) != identity(BY_ECHO, "k2", other)


MEMBER = Receipt("k1", "t", "p", purchase="mine", batch="batch-1", attempts=1)


def test_a_missing_answer_is_asked_for_alone_as_often_as_its_policy_says() -> None:
    again = settled(MEMBER, Missing("no answer"), attempts=3, now_wall_ms=5)
    assert (again.state, again.batch, again.attempts, again.sends) == ("queued", None, 2, 1)
    assert again.purchase == "mine"
    last = settled(MEMBER, Missing("no answer"), attempts=2, now_wall_ms=5)
    assert last.failure == Failure(FailureKind.TRANSIENT, "no answer")
    assert (last.state, last.settled_wall_ms) == ("failed", 5)


def test_members_end_as_their_batch_says() -> None:
    assert settled(MEMBER, Found(None), 3, 5).state == "completed"
    assert settled(MEMBER, Refusal("no"), 3, 5).failure == Failure(FailureKind.PERMANENT, "no")
    failure = Failure(FailureKind.OUTCOME_UNKNOWN, "unknown")
    batch = Receipt("batch-1", "t", "p", state="failed", failure=failure, sends=2, deaths=1)
    ended = failed_with(MEMBER, batch, 5)
    assert (ended.failure, ended.sends, ended.deaths, ended.batch) == (failure, 2, 1, None)
    alone = left_alone(MEMBER)
    assert (alone.state, alone.batch, alone.sends) == ("queued", None, 0)
