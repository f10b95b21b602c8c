"""No sliding window of a lane is ever above its limit, whatever happens to it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.streams.core.pacing import Pacer

Windows = list[tuple[int, int]]

windows = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 90_000)), max_size=4)


@dataclass(frozen=True)
class Event:
    """After `pause_ms`, `wanted` calls are ready; `hold_ms` above 0: then a 429 holds the lane."""

    pause_ms: int
    wanted: int
    hold_ms: int


events = st.lists(
    st.builds(
        Event, st.integers(0, 5_000), st.integers(0, 40), st.sampled_from([0, 0, 0, 50, 7_000])
    ),
    max_size=25,
)


def assert_within(sent_ms: list[int], limits: Windows) -> None:
    """Every stretch of `per_ms`, wherever it begins, holds at most `calls` sends."""
    for calls, per_ms in limits:
        for early, late in zip(sent_ms, sent_ms[calls:], strict=False):
            assert late - early >= per_ms, f"{calls + 1} sends within {late - early} of {per_ms} ms"


@pytest.mark.behaviour("G2")
@given(limits=windows, happenings=events, chance=st.floats(0, 0.999))
def test_no_sliding_window_is_ever_above_its_limit(
    limits: Windows, happenings: list[Event], chance: float
) -> None:
    """INV12 and INV13, with a fake clock that also lets the caller come late."""
    pacer = Pacer(limits)
    now_ms, held_until_ms, sent_ms = 0, 0, list[int]()
    for event in happenings:
        now_ms += event.pause_ms
        for _ in range(event.wanted):
            if not pacer.may_send(now_ms):
                now_ms = pacer.earliest_ms(now_ms)
            assert now_ms >= held_until_ms
            pacer.record_send(now_ms)
            sent_ms.append(now_ms)
        if event.hold_ms:
            held_until_ms = max(held_until_ms, now_ms + event.hold_ms)
            pacer.hold_until(now_ms + event.hold_ms, chance)
    assert_within(sent_ms, limits)


@given(first=windows, second=windows, before=st.integers(0, 60), after=st.integers(0, 60))
def test_new_limits_hold_over_the_sends_before_them(
    first: Windows, second: Windows, before: int, after: int
) -> None:
    pacer = Pacer(first)
    now_ms, sent_ms = 0, list[int]()
    for number in range(before + after):
        if number == before:
            pacer.limit(second)
        now_ms = pacer.earliest_ms(now_ms)
        pacer.record_send(now_ms)
        sent_ms.append(now_ms)
    newly_sent = range(before, before + after)
    for calls, per_ms in second:
        for number in newly_sent:
            if number >= calls:
                assert sent_ms[number] - sent_ms[number - calls] >= per_ms


@given(limits=windows, calls=st.integers(1, 80))
def test_a_call_leaves_as_soon_as_every_window_lets_it(limits: Windows, calls: int) -> None:
    """The other half of exactness: no send waits longer than its windows and their spread ask."""
    pacer = Pacer(limits)
    now_ms, sent_ms = 0, list[int]()
    for _ in range(calls):
        earliest_ms = pacer.earliest_ms(now_ms)
        bounds = [
            sent_ms[-count] + per_ms + min(20, per_ms // 50)
            for count, per_ms in limits
            if len(sent_ms) >= count
        ]
        assert earliest_ms == max([now_ms, *bounds])
        now_ms = earliest_ms
        pacer.record_send(now_ms)
        sent_ms.append(now_ms)
