"""Identities: the same for the same, whatever order it comes in, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.streams.core.identity import (
    canonical,
    cleaned,
    receipt_key,
    refused_row_id,
    row_id,
)


@pytest.mark.behaviour("I1")
def test_a_row_is_its_key_or_all_its_cells() -> None:
    values = {"a": "1", "b": "2"}
    assert row_id("d", "k", values) == row_id("d", "k", {})
    assert row_id("d", None, values) == row_id("d", None, {"b": "2", "a": "1"})
    assert (
        len({row_id("d", None, values), row_id("e", None, values), row_id("d", "k", values)}) == 3
    )
    assert row_id("d", None, values) != row_id("d", None, {"a": "12", "b": ""})
    assert row_id("d", ["a", "b"], values) != row_id("d", "ab", values)


def test_a_refused_row_is_nobodys_duplicate() -> None:
    ids = {
        refused_row_id("d", 0),
        refused_row_id("d", 1),
        row_id("d", 0, {}),
        row_id("d", None, {}),
    }
    assert len(ids) == 4


def test_nul_is_no_part_of_a_row() -> None:
    values = {"a": "x\0y", "n": 1}
    assert cleaned(values) == {"a": "xy", "n": 1}
    assert row_id("d", None, values) == row_id("d", None, {"a": "xy", "n": 1})
    clean = {"a": "\\u0000"}
    assert cleaned(clean) is clean


@pytest.mark.behaviour("R1")
def test_a_question_is_the_same_in_any_order_and_another_in_any_part() -> None:
    asked = receipt_key(
        "org", "scope", "tool", 1, "h.test", {"a": 1, "b": [1, {"x": None, "y": 2}]}
    )
    again = receipt_key(
        "org", "scope", "tool", 1, "h.test", {"b": [1, {"y": 2, "x": None}], "a": 1}
    )
    assert asked == again
    others = {
        receipt_key("other", "scope", "tool", 1, "h.test", {"a": 1}),
        receipt_key("org", "other", "tool", 1, "h.test", {"a": 1}),
        receipt_key("org", "scope", "other", 1, "h.test", {"a": 1}),
        receipt_key("org", "scope", "tool", 2, "h.test", {"a": 1}),
        receipt_key("org", "scope", "tool", 1, "i.test", {"a": 1}),
        receipt_key("org", "scope", "tool", 1, "h.test", {"a": "1"}),
        receipt_key("org", "scope", "tool", 1, "h.test", {"a": None}),
        receipt_key("org", "scope", "tool", 1, "h.test", {}),
    }
    assert len(others) == 8


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": {"b": -float("inf")}}])
def test_what_is_no_json_number_has_no_identity(value: object) -> None:
    with pytest.raises(ValueError, match="not a JSON number"):
        canonical(value)


@settings(deadline=None)  # a noisy machine
@given(st.dictionaries(st.text(), st.text(), min_size=2))
def test_the_order_of_columns_never_matters(values: dict[str, str]) -> None:
    turned = dict(reversed(values.items()))
    assert row_id("d", None, turned) == row_id("d", None, values)
