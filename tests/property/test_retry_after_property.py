"""Whatever stands in a provider's headers, the wait read from it is sane."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowmill.streams.core.retry_after import asked_wait_ms

NAMES = ("retry-after", "ratelimit", "ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset")

dates = st.builds(
    "{}, {} {} {} {}:{}:{} {}".format,
    st.sampled_from(["Sun", "Sunday", ""]),
    *(st.integers(-99, 99_999),),
    st.sampled_from(["Jan", "Feb", "13"]),
    *(st.integers(-1, 999_999),) * 4,
    st.sampled_from(["GMT", "-0000", "+99999", "", "XYZ"]),
)
numbers = st.text(string.digits + ".-+_eE infnat", max_size=30)
values = st.one_of(st.text(max_size=200), dates, numbers)


@pytest.mark.behaviour("Q5")
@given(
    headers=st.dictionaries(st.sampled_from(NAMES), values),
    now_epoch_ms=st.integers(0, 4_000_000_000_000),
    longest_ms=st.integers(1, 86_400_000),
)
@example(headers={"retry-after": "9" * 5_000}, now_epoch_ms=0, longest_ms=1)
@example(headers={"x-ratelimit-reset": "9" * 5_000}, now_epoch_ms=0, longest_ms=1)
def test_a_wait_is_never_negative_infinite_or_above_its_bound(
    headers: dict[str, str], now_epoch_ms: int, longest_ms: int
) -> None:
    wait_ms = asked_wait_ms(headers, now_epoch_ms, longest_ms)
    assert wait_ms is None or (isinstance(wait_ms, int) and 0 <= wait_ms <= longest_ms)
