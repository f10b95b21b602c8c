"""Values: what can't be JSON is named by its path, and what can is kept to the character."""

from __future__ import annotations

import datetime
import enum
import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from rowmill.plays.values import NotJson, to_json

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


class Colour(enum.StrEnum):
    RED = "red"


class Site(BaseModel):
    host: str = Field(alias="hostName")
    seen: datetime.date | None = None
    score: float = 0
    extra: Any = None


@settings(deadline=None, max_examples=50)  # a noisy machine
@given(json_values)
def test_a_json_value_is_kept_as_it_is(value: Any) -> None:
    assert to_json(value) == value
    assert json.loads(msgspec.json.encode(to_json(value))) == value


def test_models_tuples_and_enums_become_plain() -> None:
    site = Site(hostName="a.test", seen=datetime.date(2026, 12, 2))
    plain = to_json({"site": site, "pair": (1, Colour.RED)})
    assert plain == {
        "site": {"hostName": "a.test", "seen": "2026-12-02", "score": 0, "extra": None},
        "pair": [1, "red"],
    }
    assert type(plain["pair"][1]) is str
    assert Site.model_validate(plain["site"]) == site


async def nothing() -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, {2}]}, "value.a[1] is a set, not JSON; use a sorted list"),
        ({"a": float("nan")}, "value.a is nan, which JSON can't hold; use None"),
        ([float("-inf")], "value[0] is -inf, which JSON can't hold"),
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "use .isoformat()"),
        (Decimal("1.10"), "value is a Decimal, not JSON; use str() or float()"),
        (b"x", "use .decode() or base64 text"),
        (object(), "value is an object, not JSON; use text"),
        ({1: "a"}, "value has the key 1; the keys of a JSON object are text"),
        ("half \ud800", "half a character"),
        ({"\udfff": 1}, "half a character"),
        (Site(hostName="x", score=float("nan")), "value.score is nan"),
        (Site(hostName="x", extra=object()), "value is a Site that can't be JSON"),
    ],
)
def test_what_is_no_json_is_named_by_its_path(value: Any, said: str) -> None:
    with pytest.raises(NotJson) as refused:
        to_json(value)
    assert said in str(refused.value)


def test_a_forgotten_await_is_hinted_at() -> None:
    coroutine = nothing()
    with pytest.raises(NotJson, match="must be `async def"):
        to_json(coroutine)
    coroutine.close()


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotJson, match="or holds itself"):
        to_json(value)


def test_a_value_above_the_limit_is_refused_with_both_sizes() -> None:
    assert to_json("x" * 98, bytes_max=100) == "x" * 98
    with pytest.raises(NotJson, match='column "a" is 1,002 bytes as JSON, the limit is 100'):
        to_json("x" * 1000, 'column "a"', bytes_max=100)


def test_an_integer_that_no_record_could_hold_is_refused() -> None:
    """Its row never ended: writing it raised in a task that nobody waited for."""
    assert to_json({"n": 10**3_900}) == {"n": 10**3_900}
    with pytest.raises(
        NotJson, match=r"value\.n is a number of more than 4,000 digits; use str\(\)"
    ):
        to_json({"n": 10**5_000})
