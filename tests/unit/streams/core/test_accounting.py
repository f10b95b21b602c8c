"""Counts stay disjoint and add up, whatever rows do and however often they fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.streams.core.accounting import CallTally, Counts

ENDINGS = st.sampled_from(["completed", "failed", "skipped"])
CALLS = st.builds(CallTally, calls=st.dictionaries(st.sampled_from("pq"), st.integers(0, 3)))


@pytest.mark.behaviour("D3")
@given(first=st.lists(ENDINGS, max_size=30), again=st.lists(st.tuples(ENDINGS, CALLS), max_size=30))
def test_a_retry_moves_one_row_from_failed_and_adds_its_calls(
    first: list[str], again: list[tuple[str, CallTally]]
) -> None:
    counts = Counts()
    for status in first:
        counts = counts.after_row(status, CallTally({"p": 1}))
    for status, calls in again:
        if counts.failed == 0:
            with pytest.raises(ValueError, match="none has failed"):
                counts.after_retry(status, calls)
            continue
        before = counts
        counts = counts.after_retry(status, calls)
        assert counts.ended == len(first)
        assert counts.failed == before.failed - (status != "failed")
        assert sum(counts.calls.values()) == sum(before.calls.values()) + sum(calls.calls.values())
        assert counts.reused - before.reused == (
            status == "completed" and not any(calls.calls.values())
        )


def test_no_other_ending_is_counted() -> None:
    with pytest.raises(ValueError, match="no ending"):
        Counts(failed=1).after_retry("duplicate", CallTally())


def test_counts_survive_their_way_through_json() -> None:
    counts = Counts(1, 2, 3, 4, 1, {"p": 5}, {"p": 6}, {"p": 0.5})
    assert Counts.from_json(counts.to_json()) == counts
    assert Counts.total_of([counts, counts]).calls == {"p": 10}
