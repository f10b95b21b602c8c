"""When the next call of a lane may leave: several sliding windows at once, and holds (G1, G2).

A window (calls, per_ms) admits at most `calls` sends in any stretch of `per_ms` milliseconds, wherever
it begins. So send n may leave once `per_ms` have passed since send n - `calls`: it is enough to keep
the times of the last `calls` sends. Counters reset on the minute would admit twice the rate across
their edge (O15).

The provider counts arrivals, and a send that took the slow way comes closer to its successors than it
left. Windows are therefore kept a little longer than declared, see `arrival_spread_ms`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

ARRIVAL_SPREAD_MS_MAX = 20
"""Spread of the way to the provider that a window is lengthened by, at most."""

ARRIVAL_SPREAD_PART = 0.02
"""The same as part of the window: what pacing may cost of a declared rate."""

RELEASE_JITTER_MS_MAX = 250
"""How far the end of a hold is spread, so that lanes held together do not return together (O14)."""

RECENT_SENDS = 1_000
"""Sends remembered whatever the windows are, for windows that come later; 40 kB a lane."""


def arrival_spread_ms(per_ms: int) -> int:
    """Return by how much a window of `per_ms` is lengthened: 20 ms, 2 % of it at most."""
    return min(ARRIVAL_SPREAD_MS_MAX, math.floor(per_ms * ARRIVAL_SPREAD_PART))


@dataclass(slots=True)
class Window:
    """One window and the times of its last `calls` sends, oldest first."""

    calls: int
    per_ms: int
    sent_ms: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        if self.calls < 1 or self.per_ms < 1:
            raise ValueError(
                f"a window needs calls and per_ms of at least 1, got {self.calls} and {self.per_ms}"
            )
        self.sent_ms = deque(maxlen=self.calls)

    def earliest_ms(self) -> int:
        """Return when the next send keeps the window; 0 where it has room."""
        if len(self.sent_ms) < self.calls:
            return 0
        return self.sent_ms[0] + self.per_ms + arrival_spread_ms(self.per_ms)


class Pacer:
    """Counts a lane's sends in memory. All times: milliseconds of one monotonic clock."""

    def __init__(
        self, windows: Iterable[tuple[int, int]] = (), concurrency: int | None = None
    ) -> None:
        """`windows`: (calls, per_ms) each; `concurrency`: calls in flight, None for no bound.

        Raises: ValueError for a number below 1.
        """
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        self._windows = [Window(calls, per_ms) for calls, per_ms in windows]
        self._concurrency = concurrency
        self._in_flight = 0
        self._held_until_ms = 0
        self._last_ms = 0
        self._recent_ms: deque[int] = deque(maxlen=RECENT_SENDS)

    @property
    def in_flight(self) -> int:
        """Calls sent and not yet ended, as far as `record_end` was told."""
        return self._in_flight

    @property
    def held_until_ms(self) -> int:
        """End of the latest hold; 0 where there was none."""
        return self._held_until_ms

    def earliest_ms(self, now_ms: int) -> int:
        """Return when the next send may leave: `now_ms`, or later. Concurrency is `room`'s."""
        earliest = max(now_ms, self._held_until_ms, self._last_ms)
        for window in self._windows:
            earliest = max(earliest, window.earliest_ms())
        return earliest

    def room(self) -> bool:
        """Say whether another call may be in flight."""
        return self._concurrency is None or self._in_flight < self._concurrency

    def may_send(self, now_ms: int) -> bool:
        """Say whether a call may leave now, by windows, holds and concurrency."""
        return self.room() and self.earliest_ms(now_ms) <= now_ms

    def record_send(self, now_ms: int) -> None:
        """Count a send, allowed or not: what has left must be counted.

        A clock that ran backwards counts as standing still, so that windows stay ordered.
        """
        self._last_ms = max(now_ms, self._last_ms)
        self._recent_ms.append(self._last_ms)
        for window in self._windows:
            window.sent_ms.append(self._last_ms)
        self._in_flight += 1

    def record_end(self) -> None:
        """A call ended. Raises: ValueError where none is in flight."""
        if self._in_flight < 1:
            raise ValueError("no call is in flight")
        self._in_flight -= 1

    def hold_until(self, until_ms: int, chance: float = 0) -> None:
        """Let nothing leave before `until_ms` (a 429, Retry-After); a shorter hold changes nothing.

        `chance`: random, in [0, 1); moves the end up to 250 ms later.
        """
        end_ms = until_ms + math.floor(chance * RELEASE_JITTER_MS_MAX)
        self._held_until_ms = max(self._held_until_ms, end_ms)

    def limit(self, windows: Iterable[tuple[int, int]], concurrency: int | None = None) -> None:
        """Take other limits from now on; sends, holds and calls in flight stay counted.

        Exact for windows of up to 1,000 calls, and for longer ones up to the longest that held before;
        sends further back are not known and don't count.
        Raises: as the constructor, and changes nothing then.
        """
        fresh = Pacer(windows, concurrency)
        known = max((self._recent_ms, *(window.sent_ms for window in self._windows)), key=len)
        for window in fresh._windows:
            window.sent_ms.extend(known)
        self._windows, self._concurrency = fresh._windows, concurrency
