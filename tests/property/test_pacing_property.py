"""No sliding window of a lane is ever above its limit, whatever happens to it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.streams.core.pacing import Carried, Pacer

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
    parts = [(-(-count // 10), max(1, per_ms // 10)) for count, per_ms in limits if per_ms <= 2_000]
    now_ms, sent_ms = 0, list[int]()
    for _ in range(calls):
        earliest_ms = pacer.earliest_ms(now_ms)
        bounds = [
            sent_ms[-count] + per_ms + min(20, per_ms // 50)
            for count, per_ms in [*limits, *parts]
            if len(sent_ms) >= count
        ]
        assert earliest_ms == max([now_ms, *bounds])
        now_ms = earliest_ms
        pacer.record_send(now_ms)
        sent_ms.append(now_ms)


@dataclass(frozen=True)
class Tenure:
    """One owner: `sends` it wants, `pauses_ms` between them, `late_ms` from permit to leaving; it
    reserves `block` permits at a time, and its last record may not have become durable."""

    sends: int
    pause_ms: int
    late_ms: int
    block: int
    record_lost: bool
    recovers_ms: int


tenures = st.lists(
    st.builds(
        Tenure,
        st.integers(0, 40),
        st.integers(0, 700),
        st.integers(0, 300),
        st.integers(1, 8),
        st.booleans(),
        st.integers(0, 3_000),
    ),
    min_size=2,
    max_size=6,
)


@pytest.mark.behaviour("G2")
@settings(max_examples=1_000)
@given(limits=windows.filter(bool), owners=tenures, base_ms=st.integers(0, 10**9))
def test_no_window_is_exceeded_where_a_lane_changes_its_owner(
    limits: Windows, owners: list[Tenure], base_ms: int
) -> None:
    """INV12 over takeovers. Each owner's monotonic clock counts from somewhere else."""
    now_ms, left_ms, durable = 0, list[int](), Carried()
    for number, owner in enumerate(owners):
        base = base_ms * (number + 1)
        pacer = Pacer(limits)
        now_ms += owner.recovers_ms
        pacer.inherit(durable, now_ms + base, wall_ms=0)
        permits = 0
        for _ in range(owner.sends):
            now_ms += owner.pause_ms
            if not permits:
                permits = owner.block
                durable = pacer.carried(now_ms + base, 0, permits)
            permitted_ms = pacer.earliest_ms(now_ms + base)
            pacer.record_send(permitted_ms)
            permits -= 1
            now_ms = permitted_ms - base + owner.late_ms
            door_ms = pacer.door_ms(now_ms + base)
            assert door_ms is not None
            now_ms = door_ms - base
            pacer.pass_door()
            pacer.leave(now_ms + base)
            left_ms.append(now_ms)
        if not owner.record_lost:
            durable = pacer.carried(now_ms + base, 0, permits)
    assert_within(left_ms, limits)


@pytest.mark.behaviour("G2")
@given(
    limits=windows.filter(bool),
    ages=st.lists(st.integers(0, 90_000), max_size=60),
    at_ms=st.integers(0, 10**6),
)
def test_a_record_makes_no_send_older_than_it_is(
    limits: Windows, ages: list[int], at_ms: int
) -> None:
    """And none of a window is missing."""
    pacer = Pacer(limits)
    for age in sorted(ages, reverse=True):
        pacer.record_send(at_ms - age)
        pacer.pass_door()
        pacer.leave(at_ms - age)
    longest_ms = max(per_ms for _, per_ms in limits)
    told = [age for age, calls in pacer.carried(at_ms, 0, 0).sends for _ in range(calls)]
    known = sorted(age for age in ages if age <= longest_ms)
    assert len(told) == len(known)
    assert all(age - age // 16 - 1 <= said <= age for said, age in zip(told, known, strict=True))
