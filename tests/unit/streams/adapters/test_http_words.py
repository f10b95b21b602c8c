"""A provider's words about a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.streams.adapters.http_words import (
    WORDS_CHARACTERS_MAX,
    credits_gone,
    printable,
    words_of,
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "unknown name", "code": 7}}', "unknown name"),
        (b'{"error": "invalid", "message": "no such company"}', "invalid: no such company"),
        (b'{"errors": [{"detail": "too long"}, {"detail": "too short"}]}', "too long: too short"),
        (b'{"detail": [{"loc": ["body"], "msg": "field required"}]}', "field required"),
        (b'"nope"', "nope"),
        (b"plain words", "plain words"),
        (b"<html><head><title> 502 Bad\n Gateway</title>", "502 Bad Gateway"),
        (b"<html>", ""),
        (b"", ""),
        (b'{"code": 7}', ""),
        (b"[" * 100_000, "[" * 299 + "…"),
    ],
)
def test_words_are_found_where_providers_put_them(body: bytes, words: str) -> None:
    assert words_of(body) == words


def test_words_cannot_steer_a_terminal() -> None:
    assert printable("\x1b[31mred\x07\r\n\u202etxet\u2066 \x9b0m") == "[31mred txet 0m"


@given(st.binary(max_size=2_000))
def test_words_are_short_and_printable_whatever_came(body: bytes) -> None:
    words = words_of(body)
    assert len(words) <= WORDS_CHARACTERS_MAX
    assert words.isprintable()


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        (b'{"error": "insufficient_credits"}', True),
        (b'{"error": {"code": "insufficient_quota"}}', True),
        (b"You are out of credits", True),
        (b"Your credits have been used up.", True),
        (b"Quota exceeded for requests per minute", False),
        (b"rate limit", False),
    ],
)
def test_used_up_credits_are_told_from_a_rate_limit(body: bytes, gone: bool) -> None:
    assert credits_gone(body) is gone
