"""How many calls of a lane are worth having in flight (Q3): found by probing, within its maximum.

With a declared rate, calls in flight are rate x latency x 1.5: enough to use the rate up, and no more
(Little's law: in flight = rate x latency). Latency counts as 1,000 ms until one was measured.

Below that, and for lanes without a rate, a *climber* looks for the knee. As long as a provider has room,
more calls in flight bring as many more answers, and each takes as long as before. Beyond the knee they
only take longer. So it moves the limit by some percent, and compares mean latency before and after: where
throughput (limit / latency) grew by less than a third of the limit's growth, the last step was too much.
Steps grow while the direction stays and shrink where it turns. A 429 or a time-out is a step down at
once, from which it comes back by one call each latency.

The idea of a limit that follows measured latency is Netflix's concurrency-limits (Gradient2); comparing
before and after instead of with a long-term minimum is ours: a minimum of yesterday says nothing about a
provider that is ten times slower today (F39).
"""

from __future__ import annotations

import math

LATENCY_MS_FIRST = 1_000.0
HEADROOM = 1.5

SMOOTHING = 0.1
"""Weight of a new latency in the mean that a rate's calls in flight follow."""

STEP_MIN, STEP_MAX = 0.1, 0.5
STEP_GROWS, STEP_SHRINKS = 1.5, 0.5
GAIN_MIN = 1 / 3
"""Part of the limit's growth that throughput must follow by."""

SAMPLES_MIN = 30
"""Latencies that a mean is taken of, or two of each call in flight where that is more."""

SATURATED = 0.7
"""Part of them that must have had all other slots taken: else the limit was not what limited."""

BACKOFF = 0.7
"""A 429 or a time-out leaves so much of the limit."""


class Concurrency:
    """One lane's limit. Times: milliseconds, of one monotonic clock."""

    def __init__(self, start: int, maximum: int, rate_per_s: float | None = None) -> None:
        """`rate_per_s`: of the strictest window, None without one. Raises: ValueError below 1."""
        if start < 1 or maximum < 1:
            raise ValueError(f"start and maximum must be at least 1, got {start} and {maximum}")
        self._maximum = maximum
        self._rate_per_s = rate_per_s
        self._latency_ms = LATENCY_MS_FIRST
        self._measured = False
        self._level = float(min(start, maximum))
        self._step = STEP_MAX
        self._up = True
        self._before: tuple[float, float] | None = None
        self._skip = 0
        self._taken: list[float] = []
        self._full = 0
        self._backed_off_ms = -math.inf
        self._recover_to = 0.0

    @property
    def limit(self) -> int:
        """Calls that may be in flight now: 1 to the maximum."""
        found = math.floor(self._level)
        if self._rate_per_s is not None:
            wanted = self._rate_per_s * self._latency_ms / 1000 * HEADROOM
            found = min(found, math.ceil(wanted) + 1)
        return max(1, min(found, self._maximum))

    def bound(self, maximum: int, rate_per_s: float | None) -> None:
        """Take another maximum and rate from now on; what was learned stays."""
        if self._level >= self._maximum:
            self._level = float(maximum)
        self._maximum, self._rate_per_s = maximum, rate_per_s
        self._level = min(self._level, maximum)

    def answered(self, latency_ms: float, in_flight: int) -> None:
        """Count an answer. `in_flight`: with the one that was answered."""
        weight = SMOOTHING if self._measured else 1.0
        self._measured = True
        self._latency_ms += (latency_ms - self._latency_ms) * weight
        if self._level < self._recover_to:
            # One more each latency, as TCP does (RFC 5681, 3.1): 30 samples of a few calls in flight
            # would take minutes.
            self._level = min(self._recover_to, self._level + 1 / max(1.0, self._level))
            return
        if self._skip:
            self._skip -= 1  # it left under another limit
            return
        self._taken.append(latency_ms)
        self._full += in_flight >= self.limit - 1
        if len(self._taken) >= max(SAMPLES_MIN, 2 * self.limit):
            self._look()

    def refused(self, now_ms: float, latency_ms: float) -> None:
        """Count a 429 or a time-out: less, at once, but once for all that were under way together.

        What left before the last step down says nothing of it (RFC 6582, NewReno's recovery point).
        `latency_ms`: since it left.
        """
        if now_ms - latency_ms < self._backed_off_ms:
            return
        self._backed_off_ms = now_ms
        self._recover_to = float(self.limit)
        self._step, self._up = STEP_MIN, True
        self._move_to(self.limit * BACKOFF)
        self._before = None

    def _look(self) -> None:
        """Compare this limit with the one before, and move."""
        mean_ms = max(sum(self._taken) / len(self._taken), 0.001)
        saturated = self._full >= SATURATED * len(self._taken)
        level, before = self._level, self._before
        self._taken, self._full = [], 0
        if not saturated:
            self._before = None
            return
        self._before = (level, mean_ms)
        if before is not None and before[0] != level:
            grew = level / before[0] - 1
            gained = (level / mean_ms) / (before[0] / before[1]) - 1
            self._turn(up=gained / grew >= GAIN_MIN)
        elif before is not None:
            self._turn(up=False)  # at its maximum: is less as good?
        change = 1 + self._step if self._up else 1 / (1 + self._step)
        self._move_to(level * change)

    def _turn(self, *, up: bool) -> None:
        grows = STEP_GROWS if up == self._up else STEP_SHRINKS
        self._step = min(STEP_MAX, max(STEP_MIN, self._step * grows))
        self._up = up

    def _move_to(self, level: float) -> None:
        before = self.limit
        self._level = max(1.0, min(level, float(self._maximum)))
        if self.limit == before and self._level not in (1.0, float(self._maximum)):
            self._level = max(1.0, min(before + (1 if self._up else -1), float(self._maximum)))
        self._skip = max(before, self.limit)
        self._taken, self._full = [], 0
