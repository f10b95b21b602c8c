"""An answer's JSON, strictly, with every digit."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.streams.adapters.http_body import BodyUnusable
from rowmill.streams.adapters.http_json import DEPTH_MAX, NestedTooDeep, decode

CASES = Path(__file__).parent / "cases"


def test_large_whole_numbers_keep_every_digit() -> None:
    """Case O21: two ids that differ in their last digit stay two ids."""
    body = (CASES / "O21_numbers_ok.txt").read_bytes()
    found = decode(body, "application/json")
    assert found["id"] == 9_007_199_254_740_993
    assert found["big"] == 123_456_789_012_345_678_901_234_567_890
    assert (found["price"], found["tiny"]) == (12.1, 1e-7)
    assert b"123456789012345678901234567890" in msgspec.json.encode(found)


@pytest.mark.parametrize(
    "text",
    [
        "12.1000000000000000000000000000001",
        "-0.12345678901234567890",
        "1234567890.12345678901",
        "1e-400",
    ],
)
def test_a_decimal_that_no_float_can_carry_comes_as_its_text(text: str) -> None:
    assert decode(text.encode(), "") == text


@pytest.mark.parametrize(
    "text", ["12.10", "0.0", "-0.0", "1e22", "0.00000000000000000000125", "100000000000000000000.0"]
)
def test_an_ordinary_decimal_is_a_float(text: str) -> None:
    assert decode(text.encode(), "") == float(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_a_double_printed_comes_back_as_that_double(value: float) -> None:
    for text in (repr(value), f"{value:.16e}"):
        found = decode(json.dumps(json.loads(text)).encode(), "")
        assert found == value or Decimal(found) == Decimal(text)
        assert isinstance(decode(text.encode(), ""), float)


@pytest.mark.parametrize(
    ("body", "cut", "reason"),
    [
        (b"", True, "empty"),
        (b" \r\n", True, "empty"),
        (b"<html><title>Sign in</title></html>", True, "a page"),
        (b'{"email":"ada@ac', True, "cut off"),
        ((CASES / "O21_numbers_bad.txt").read_bytes(), False, "not JSON"),
        (b"NaN", False, "not JSON"),
        (b"[1, Infinity]", False, "not JSON"),
        (b"1e999", False, "not JSON"),
        (b"9" * 5_000, False, "not JSON"),
        (b"{} {}", False, "not JSON"),
        (b"{'a': 1}", False, "not JSON"),
        (b'{"a": 1,}', False, "not JSON"),
        (b"OK", False, "not JSON"),
        (b'"\xff"', False, "not UTF-8"),
        (b'"a\x00b"', False, "not JSON"),
    ],
)
def test_what_is_no_json_says_why(body: bytes, cut: bool, reason: str) -> None:
    with pytest.raises(BodyUnusable, match=reason) as caught:
        decode(body, "application/json")
    assert caught.value.cut is cut


def test_nesting_is_bounded() -> None:
    assert decode(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, "")
    for depth in (DEPTH_MAX + 1, 900, 100_000):
        with pytest.raises(NestedTooDeep, match="deeper than 100 levels"):
            decode(b'{"a":' * depth + b"1" + b"}" * depth, "")
    wide = b"[" + b"{}," * 10_000 + b"{}]"
    assert len(decode(wide, "")) == 10_001


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"name":"Renée"}'.encode("latin-1"), "application/json; charset=iso-8859-1"),
        ('{"name":"Renée"}'.encode("cp1252"), 'application/json; charset="Windows-1252"; x=y'),
        ('{"name":"Renée"}'.encode(), "application/json"),
        ('{"name":"Renée"}'.encode(), "application/json; charset=iso-8859-1"),
        ('{"name":"Renée"}'.encode("utf-8-sig"), "text/plain"),
    ],
)
def test_a_charset_counts_where_the_bytes_are_no_utf_8(body: bytes, content_type: str) -> None:
    assert decode(body, content_type) == {"name": "Renée"}


def test_a_charset_nobody_needs_is_not_tried() -> None:
    with pytest.raises(BodyUnusable, match="not UTF-8"):
        decode(b'"\xff"', "application/json; charset=utf-7")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_comes_through_unchanged(value: Any) -> None:
    assert decode(json.dumps(value).encode(), "application/json") == value


@given(st.binary(max_size=300), st.text(max_size=40))
def test_no_body_breaks_the_reader(body: bytes, content_type: str) -> None:
    try:
        found = decode(body, content_type)
    except (BodyUnusable, NestedTooDeep):
        return
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
