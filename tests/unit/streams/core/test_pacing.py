"""When the next call of a lane may leave."""

from __future__ import annotations

import pytest

from rowmill.streams.core.pacing import Pacer, arrival_spread_ms


def sent_by(pacer: Pacer, calls: int, now_ms: int = 0) -> list[int]:
    """Send `calls` calls as early as the pacer lets them, and return when."""
    times = []
    for _ in range(calls):
        now_ms = pacer.earliest_ms(now_ms)
        pacer.record_send(now_ms)
        times.append(now_ms)
    return times


def test_without_windows_every_call_leaves_at_once() -> None:
    assert sent_by(Pacer(), 1_000, now_ms=7) == [7] * 1_000


def test_two_windows_hold_at_once_across_the_minute() -> None:
    """Case O15: 10 per second and 100 per minute, 130 ready just before a full minute."""
    times = sent_by(Pacer([(10, 1_000), (100, 60_000)]), 130, now_ms=59_900)
    for first, eleventh in zip(times, times[10:], strict=False):
        assert eleventh - first >= 1_000
    for first, next_hundred in zip(times, times[100:], strict=False):
        assert next_hundred - first >= 60_000
    assert 60_000 <= times[-1] - times[0] <= 75_000


def test_a_window_is_longer_than_declared_by_the_spread_of_the_way() -> None:
    """Sends that leave exactly a second apart may arrive 990 ms apart, and that is the 11th in one."""
    assert sent_by(Pacer([(1, 1_000)]), 2) == [0, 1_020]
    assert [arrival_spread_ms(per_ms) for per_ms in (10, 100, 1_000, 60_000)] == [0, 2, 20, 20]


@pytest.mark.behaviour("G2")
def test_nothing_leaves_during_a_hold_and_the_longest_holds() -> None:
    pacer = Pacer([(10, 1_000)])
    pacer.hold_until(2_000)
    pacer.hold_until(500)
    assert pacer.earliest_ms(0) == 2_000
    assert not pacer.may_send(1_999)
    assert pacer.may_send(2_000)


@pytest.mark.behaviour("G2")
def test_lanes_held_together_do_not_come_back_together() -> None:
    ends = set()
    for chance in (0.0, 0.3, 0.6, 0.999):
        pacer = Pacer()
        pacer.hold_until(600_000, chance)
        ends.add(pacer.earliest_ms(0))
    assert len(ends) == 4
    assert all(600_000 <= end < 600_250 for end in ends)


@pytest.mark.behaviour("G2")
def test_after_a_storm_of_refusals_the_window_holds() -> None:
    """Case O14: 10 per second, a 429 asks for 2 s; then 30 calls leave, never above 10 in a second."""
    pacer = Pacer([(10, 1_000)])
    sent_by(pacer, 10)
    pacer.hold_until(4_000 + 2_000)
    times = sent_by(pacer, 30, now_ms=4_000)
    assert times[0] == 6_000
    assert all(late - early >= 1_000 for early, late in zip(times, times[10:], strict=False))


def test_calls_in_flight_are_bounded() -> None:
    pacer = Pacer(concurrency=2)
    pacer.record_send(0)
    assert pacer.may_send(0)
    pacer.record_send(0)
    assert not pacer.may_send(0)
    pacer.record_end()
    assert pacer.may_send(0)
    assert pacer.in_flight == 1


def test_a_clock_that_steps_back_breaks_no_window() -> None:
    pacer = Pacer([(1, 1_000)])
    pacer.record_send(5_000)
    assert pacer.earliest_ms(1_000) == 6_020
    pacer.record_send(1_000)
    assert pacer.earliest_ms(1_000) == 6_020


def test_sends_count_under_new_limits() -> None:
    pacer = Pacer([(10, 10_000)], concurrency=5)
    sent_by(pacer, 3)
    pacer.hold_until(100)
    pacer.limit([(3, 10_000)], concurrency=3)
    assert pacer.earliest_ms(0) == 10_020
    assert not pacer.room()
    pacer.limit([])
    assert pacer.earliest_ms(0) == 100


def test_a_window_of_a_second_is_spread_out_and_one_of_a_minute_is_not() -> None:
    """A provider that gets a second's calls at once staggers, and then sees two bursts as one."""
    pacer = Pacer([(200, 1_000)])
    times = sent_by(pacer, 400)
    assert times[:20] == [0] * 20
    assert [times[20], times[40], times[399]] == [102, 204, 1_938]
    assert sent_by(Pacer([(200, 60_000)]), 200) == [0] * 200
    assert sent_by(Pacer([(3, 1_000)]), 4) == [0, 102, 204, 1_020]


def test_a_429_lengthens_windows_a_little_and_a_minute_without_one_takes_it_back() -> None:
    pacer = Pacer([(1, 10_000)])
    pacer.record_send(0)
    assert pacer.earliest_ms(0) == 10_020
    pacer.widen(0)
    assert pacer.earliest_ms(0) == 10_040
    for _ in range(9):
        pacer.widen(0)
    assert pacer.earliest_ms(0) == 10_100
    pacer.record_send(60_000)
    assert pacer.earliest_ms(60_000) == 70_080


def test_a_wider_window_knows_the_sends_that_a_narrow_one_forgot() -> None:
    pacer = Pacer([(2, 1_000)])
    times = sent_by(pacer, 50)
    pacer.limit([(40, 60_000)])
    assert pacer.earliest_ms(times[-1]) == times[10] + 60_020


@pytest.mark.parametrize(("windows", "concurrency"), [([(0, 1)], 1), ([(1, 0)], 1), ([], 0)])
def test_limits_below_one_are_refused(windows: list[tuple[int, int]], concurrency: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Pacer(windows, concurrency)


def test_an_end_without_a_send_is_refused() -> None:
    with pytest.raises(ValueError, match="no call is in flight"):
        Pacer().record_end()
