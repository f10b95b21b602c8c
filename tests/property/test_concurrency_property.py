"""Against a provider with so many servers: the knee is found, and found again (Q3)."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from rowmill.streams.core.concurrency import Concurrency


@dataclass
class Provider:
    """`servers` work at a time, each call takes about `latency_ms`; the others wait in its queue."""

    servers: int
    latency_ms: float
    chance: random.Random
    spread: float = 0.2
    now_ms: float = 0.0
    free_ms: list[float] = field(default_factory=list)
    open: list[tuple[float, float]] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=list)

    def send(self) -> None:
        """Take a call."""
        begins = self.now_ms
        if len(self.free_ms) >= self.servers:
            begins = max(begins, heapq.heappop(self.free_ms))
        takes = self.latency_ms * self.chance.lognormvariate(0, self.spread)
        heapq.heappush(self.free_ms, begins + takes)
        heapq.heappush(self.open, (begins + takes, self.now_ms))

    def run(self, lane: Concurrency, for_ms: float) -> tuple[float, float]:
        """Keep as many calls open as the lane allows; return answers a second and mean latency."""
        begin, until_ms = len(self.answers), self.now_ms + for_ms
        while self.now_ms < until_ms:
            while len(self.open) < lane.limit:
                self.send()
            ends, sent = heapq.heappop(self.open)
            self.now_ms = max(self.now_ms, ends)
            lane.answered(self.now_ms - sent, len(self.open) + 1)
            self.answers.append((self.now_ms, self.now_ms - sent))
        taken = [latency for _, latency in self.answers[begin:]]
        return len(taken) / for_ms * 1000, sum(taken) / len(taken)


@pytest.mark.behaviour("Q3")
@pytest.mark.parametrize("servers", [1, 3, 10, 40, 150])
def test_the_knee_is_found_whatever_the_provider_can_do(servers: int) -> None:
    """A fixed optimum is `servers`: more bring no more answers."""
    provider = Provider(servers, 50, random.Random(servers))
    lane = Concurrency(32, 400)
    provider.run(lane, 20_000 if servers > 5 else 60_000)  # few answers, slow to learn from
    per_s, latency_ms = provider.run(lane, 20_000)
    assert per_s >= 0.85 * servers / 0.051
    assert latency_ms <= 2.0 * 51


@pytest.mark.behaviour("Q3")
@pytest.mark.parametrize(("servers", "slow_servers"), [(40, 40), (10, 100)])
def test_a_latency_that_steps_from_50_to_500_ms_and_back_is_followed(
    servers: int, slow_servers: int
) -> None:
    """With as many servers, and with as many answers a second, which needs ten times the calls."""
    provider = Provider(servers, 50, random.Random(1))
    lane = Concurrency(32, 400)
    provider.run(lane, 20_000)
    for count, latency_ms in ((slow_servers, 500), (servers, 50)):
        provider.servers, provider.latency_ms = count, latency_ms
        del provider.free_ms[count:]
        provider.run(lane, 30_000)
        per_s, mean_ms = provider.run(lane, 20_000)
        assert per_s >= 0.8 * count / (latency_ms * 1.02 / 1000)
        assert mean_ms <= 2.0 * latency_ms * 1.02


def answer(lane: Concurrency, latency_ms: float, count: int) -> None:
    for _ in range(count):
        lane.answered(latency_ms, lane.limit)


@pytest.mark.behaviour("Q3")
def test_with_a_rate_calls_in_flight_are_rate_times_latency_and_a_half_more() -> None:
    lane = Concurrency(400, 400, rate_per_s=100)
    assert lane.limit == 151  # 1,000 ms until one was measured
    lane.answered(200, in_flight=1)
    assert lane.limit == 31
    lane.bound(20, rate_per_s=100)
    assert lane.limit == 20


@pytest.mark.behaviour("Q3")
def test_a_429_is_a_step_down_once_for_all_that_were_under_way_together() -> None:
    lane = Concurrency(100, 100)
    answer(lane, 50, 1)
    for at_ms in range(10):
        lane.refused(now_ms=1_000 + at_ms, latency_ms=50)
    assert lane.limit == 70
    lane.refused(now_ms=1_900, latency_ms=950)
    assert lane.limit == 70, "it left before the step down, however long it took"
    lane.refused(now_ms=1_100, latency_ms=50)
    assert lane.limit == 49
    answer(lane, 50, 2_000)
    assert lane.limit == 100  # it may be more again


@pytest.mark.behaviour("Q3")
def test_a_limit_that_is_not_reached_says_nothing_and_stays() -> None:
    lane = Concurrency(50, 400)
    for _ in range(1_000):
        lane.answered(50, in_flight=3)
    assert lane.limit == 50


def test_no_answers_make_a_limit_below_one_or_above_the_maximum() -> None:
    chance = random.Random(7)
    lane = Concurrency(5, 9)
    for step in range(20_000):
        lane.answered(chance.choice((0, 0.1, 1, 50, 9_000_000)), chance.randint(1, 9))
        if chance.random() < 0.05:
            lane.refused(step * 10, chance.choice((0, 50, 9_000)))
        assert 1 <= lane.limit <= 9
    with pytest.raises(ValueError, match="at least 1"):
        Concurrency(0, 9)
