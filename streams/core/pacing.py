"""When the next call of a lane may leave: several sliding windows at once, and holds (G1, G2).

A window (calls, per_ms) admits at most `calls` sends in any stretch of `per_ms` milliseconds, wherever
it begins. So send n may leave once `per_ms` have passed since send n - `calls`: it is enough to keep
the times of the last `calls` sends. Counters reset on the minute would admit twice the rate across
their edge (O15).

The provider counts arrivals, and a send that took the slow way comes closer to its successors than it
left. Windows are therefore kept a little longer than declared, see `arrival_spread_ms`.

A permit is not yet a send: its lease must be durable first, and a broker that is away for two seconds
lets ten permits gather that would all leave at once. So windows are counted a second time where sends
leave, at the *door*: at any time, what left within a window and what has passed its door but not left
yet are together at most `calls`. Passing adds one to the second, leaving moves it to the first, time
only takes away: no window is exceeded by the times of leaving.

A whole window's calls at once would make the provider stagger, and come the closer to the next ones the
longer it took. So a window of up to two seconds is spread out: a tenth of it admits a tenth of the calls.

What a lane has sent outlives its owner as `Carried`: a durable record says what left when, and how many
more may leave before the next record (a *block* of permits, reserved before any of them is used). A
new owner counts all of that as if the record had been written right before it took over; its clock and
the former one's are not compared. That costs a part of one window at each change of owner, and a block.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

ARRIVAL_SPREAD_MS_MAX = 20
"""Spread of the way to the provider that a window is lengthened by, at most."""

ARRIVAL_SPREAD_PART = 0.02
"""The same as part of the window: what pacing may cost of a declared rate."""

WIDENED_MAX = 5
"""A 429 although the windows were kept says that the way there spreads more: each one lengthens them by
as much again, up to 10 % in all, and a minute without one takes that back."""

WIDENED_MS = 60_000

CLOCK_MS = 2
"""Clocks count whole milliseconds, and no two run exactly alike."""

RELEASE_JITTER_MS_MAX = 250
"""How far the end of a hold is spread, so that lanes held together do not return together (O14)."""

SPREAD_OUT_MS_MAX = 2_000
"""Windows up to this length are spread out; the calls of a minute may leave as soon as others allow."""

PARTS = 10

BUCKET_PART = 16
"""Carried sends whose ages differ by less than a 16th count as one moment, the youngest's."""

CLOCKS_APART_MS_MAX = 300_000
"""Wall clocks of two machines may differ by that much (F30 moves one by 2 minutes). What a daily quota
carried grows older by the wall clock's time between record and takeover, less this."""

RECENT_SENDS = 1_000
"""Sends remembered whatever the windows are, for windows that come later; 40 kB a lane."""


def arrival_spread_ms(per_ms: int) -> int:
    """Return by how much a window of `per_ms` is lengthened: 20 ms, 2 % of it at most."""
    return min(ARRIVAL_SPREAD_MS_MAX, math.floor(per_ms * ARRIVAL_SPREAD_PART))


@dataclass(frozen=True, slots=True)
class Carried:
    """What a lane's next owner must count. `sends`: (age_ms, calls) at `wall_ms`, youngest first.

    `open`: calls that may have left since. `held_ms`: of a wait, what was left then.
    """

    sends: tuple[tuple[int, int], ...] = ()
    open: int = 0
    held_ms: int = 0
    wall_ms: int = 0


@dataclass(slots=True)
class Window:
    """One window and the times of its last `calls` permits and departures, oldest first."""

    calls: int
    per_ms: int
    sent_ms: deque[int] = field(init=False)
    left_ms: deque[int] = field(init=False)
    _door_ms: int = field(init=False)

    def __post_init__(self) -> None:
        if self.calls < 1 or self.per_ms < 1:
            raise ValueError(
                f"a window needs calls and per_ms of at least 1, got {self.calls} and {self.per_ms}"
            )
        self.sent_ms = deque(maxlen=self.calls)
        self.left_ms = deque(maxlen=self.calls)
        # Less than what permits keep, or each window would add to how long calls wait at the door.
        self._door_ms = max(CLOCK_MS, arrival_spread_ms(self.per_ms) // 2)

    def earliest_ms(self, widened: int = 1) -> int:
        """Return when the next send keeps the window; 0 where it has room."""
        if len(self.sent_ms) < self.calls:
            return 0
        return self.sent_ms[0] + self.per_ms + arrival_spread_ms(self.per_ms) * widened

    def door_ms(self, leaving: int) -> int | None:
        """Return when the next send may pass, with `leaving` that have passed and not left.

        None: not before one of those has left.
        """
        free = self.calls - leaving
        if free < 1:
            return None
        return 0 if len(self.left_ms) < free else self.left_ms[-free] + self.per_ms + self._door_ms

    def take_in(self, sends_ms: Iterable[int]) -> None:
        """Count sends of a former owner among ours. `sends_ms`: ascending."""
        for times in (self.sent_ms, self.left_ms):
            _merge_in(times, sends_ms)


class Pacer:
    """Counts a lane's sends in memory. All times: milliseconds of one monotonic clock."""

    def __init__(
        self, windows: Iterable[tuple[int, int]] = (), concurrency: int | None = None
    ) -> None:
        """`windows`: (calls, per_ms) each; `concurrency`: calls in flight, None for no bound.

        `slots`, an attribute: how many of them are worth having now (`core.concurrency`).
        Raises: ValueError for a number below 1.
        """
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        self._declared = [Window(calls, per_ms) for calls, per_ms in windows]
        self._windows = [*self._declared, *map(_part, filter(_is_short, self._declared))]
        self.slots = concurrency
        self._in_flight = 0
        self._leaving = 0
        self._permitted = 0
        self._held_until_ms = 0
        self._widened = 1
        self._widened_ms = 0
        self._last_ms = 0
        self._recent_ms: deque[int] = deque(maxlen=RECENT_SENDS)
        self._recent_left_ms: deque[int] = deque(maxlen=RECENT_SENDS)

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
            earliest = max(earliest, window.earliest_ms(self._widened))
        return earliest

    def room(self) -> bool:
        """Say whether another call may be in flight."""
        return self.slots is None or self._in_flight < self.slots

    def may_send(self, now_ms: int) -> bool:
        """Say whether a call may leave now, by windows, holds and concurrency."""
        return self.room() and self.earliest_ms(now_ms) <= now_ms

    def record_send(self, now_ms: int) -> None:
        """Count a send, allowed or not: what has left must be counted.

        A clock that ran backwards counts as standing still, so that windows stay ordered.
        """
        self._last_ms = max(now_ms, self._last_ms)
        if self._widened > 1 and now_ms - self._widened_ms >= WIDENED_MS:
            self._widened, self._widened_ms = self._widened - 1, now_ms
        self._recent_ms.append(self._last_ms)
        for window in self._windows:
            window.sent_ms.append(self._last_ms)
        self._in_flight += 1
        self._permitted += 1

    def door_ms(self, now_ms: int) -> int | None:
        """Return when a send with a permit may leave: `now_ms` or later; None as `Window.door_ms`."""
        earliest = max(now_ms, self._held_until_ms)
        for window in self._declared:
            found = window.door_ms(self._leaving)
            if found is None:
                return None
            earliest = max(earliest, found)
        return earliest

    def pass_door(self) -> None:
        """A send is about to leave: `leave` or `stay` must follow."""
        self._leaving += 1

    def leave(self, now_ms: int) -> None:
        """It left."""
        self._leaving -= 1
        self._permitted -= 1
        self._recent_left_ms.append(now_ms)
        for window in self._declared:
            window.left_ms.append(now_ms)

    def stay(self) -> None:
        """It did not leave after all."""
        self._leaving -= 1

    def record_end(self, *, left: bool = True) -> None:
        """A call ended. `left`: False where its permit was not used. Raises: ValueError without one."""
        if self._in_flight < 1:
            raise ValueError("no call is in flight")
        self._in_flight -= 1
        if not left:
            self._permitted -= 1

    def occupy(self) -> None:
        """A former owner's call may be under way: it takes a slot until `record_end`."""
        self._in_flight += 1

    def widen(self, now_ms: int) -> None:
        """The provider refused a call (429) although the windows were kept: keep them longer."""
        self._widened = min(self._widened + 1, WIDENED_MAX)
        self._widened_ms = now_ms

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
        left = max((self._recent_left_ms, *(window.left_ms for window in self._declared)), key=len)
        for window in fresh._windows:
            window.sent_ms.extend(known)
            window.left_ms.extend(left)
        self._declared, self._windows = fresh._declared, fresh._windows
        self.slots = concurrency

    @property
    def rate_per_s(self) -> float | None:
        """Calls a second that the strictest window admits for long; None without windows."""
        found = (window.calls / window.per_ms * 1000 for window in self._declared)
        return min(found, default=None)

    @property
    def longest_ms(self) -> int:
        """The longest window; 0 without windows."""
        return max((window.per_ms for window in self._declared), default=0)

    @property
    def burst(self) -> int | None:
        """Calls that the smallest window admits at once; None without windows."""
        return min((window.calls for window in self._declared), default=None)

    def carried(self, now_ms: int, wall_ms: int, reserved: int) -> Carried:
        """Return what the next owner must count, with `reserved` more permits that may be used."""
        longest_ms = self.longest_ms
        left = max((self._recent_left_ms, *(window.left_ms for window in self._declared)), key=len)
        ages = [age for at in reversed(left) if (age := max(0, now_ms - at)) <= longest_ms]
        held_ms = max(0, self._held_until_ms - now_ms)
        return Carried(_buckets(ages), max(0, self._permitted) + reserved, held_ms, wall_ms)

    def inherit(self, carried: Carried, at_ms: int, wall_ms: int) -> None:
        """Count what a former owner sent. `at_ms`, `wall_ms`: when this owner took over."""
        apart_ms = max(0, wall_ms - carried.wall_ms - CLOCKS_APART_MS_MAX)
        sends = [(at_ms, carried.open)]
        sends += [(at_ms - age_ms - apart_ms, calls) for age_ms, calls in carried.sends]
        longest = max((window.calls for window in self._declared), default=RECENT_SENDS)
        times: deque[int] = deque(maxlen=max(longest, RECENT_SENDS))
        for sent_ms, calls in sorted(sends):
            times.extend([sent_ms] * min(calls, times.maxlen or 0))
        for window in self._windows:
            window.take_in(times)
        for recent in (self._recent_ms, self._recent_left_ms):
            _merge_in(recent, times)
        self._held_until_ms = max(self._held_until_ms, at_ms + carried.held_ms - apart_ms)


def _merge_in(times: deque[int], sends_ms: Iterable[int]) -> None:
    """Put ascending times among ascending ones; the oldest fall out of a deque that is full."""
    merged = list(heapq.merge(times, sends_ms))
    times.clear()
    times.extend(merged)


def _is_short(window: Window) -> bool:
    return window.per_ms <= SPREAD_OUT_MS_MAX


def _part(window: Window) -> Window:
    return Window(math.ceil(window.calls / PARTS), max(1, window.per_ms // PARTS))


def _buckets(ages_ms: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Gather ages, ascending, into (youngest age, calls)."""
    found: list[tuple[int, int]] = []
    for age in ages_ms:
        if found and age - found[-1][0] <= found[-1][0] // BUCKET_PART:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((age, 1))
    return tuple(found)
