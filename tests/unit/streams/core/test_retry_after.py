"""Reading how long a provider asked to wait."""

from __future__ import annotations

import pytest

from rowmill.streams.core.retry_after import asked_wait_ms

NOW_MS = 1_772_366_400_000  # Sun, 01 Mar 2026 12:00:00 GMT
LONGEST_MS = 900_000

OWN = None
"""The caller's own backoff applies."""


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("120", 120_000),
        (" 7 ", 7_000),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30_000),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30_000),
        ("Sun Mar  1 12:00:30 2026", 30_000),
        ("1.5", 1_500),
        ("0", 0),
        ("-5", OWN),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", OWN),
        ("9" * 400, LONGEST_MS),
        ("9" * 5_000, LONGEST_MS),
        ("nan", OWN),
        ("inf", OWN),
        ("soon", OWN),
        ("", OWN),
        ("1_0", OWN),
        ("+5", OWN),
        ("1e3", OWN),
        ("٣", OWN),
        ("5 seconds", OWN),
        ("0000000000000000000007", 7_000),
        ("0.0001", 1),
        ("901", LONGEST_MS),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_MS),
        ("Sun, 01 Mar 2026 12:00:30 -9999", OWN),
    ],
)
def test_retry_after_is_obeyed_within_bounds(value: str, expected_ms: int | None) -> None:
    """The 20 values of case O13 and some more of their kind."""
    assert asked_wait_ms({"retry-after": value}, NOW_MS, LONGEST_MS) == expected_ms


@pytest.mark.parametrize(
    ("headers", "expected_ms"),
    [
        ({}, OWN),
        ({"x-ratelimit-reset": "1772366430"}, 30_000),
        ({"x-ratelimit-reset": "1772366430000"}, 30_000),
        ({"x-ratelimit-reset": "30"}, 30_000),
        ({"x-ratelimit-reset": "1772366340"}, 0),
        ({"ratelimit-reset": "4"}, 4_000),
        ({"x-rate-limit-reset": "4"}, 4_000),
        ({"ratelimit": "limit=100, remaining=0, reset=30"}, 30_000),
        ({"ratelimit": '"burst";r=0;t=2, "daily";r=90;t=40000'}, 2_000),
        ({"ratelimit": "reset=-1, t=nan"}, OWN),
        ({"x-ratelimit-reset": "9" * 400}, LONGEST_MS),
        ({"retry-after": "3", "x-ratelimit-reset": "30"}, 3_000),
        ({"retry-after": "soon", "x-ratelimit-reset": "30"}, 30_000),
    ],
)
def test_rate_limit_headers_count_where_retry_after_says_nothing(
    headers: dict[str, str], expected_ms: int | None
) -> None:
    assert asked_wait_ms(headers, NOW_MS, LONGEST_MS) == expected_ms
