"""Lanes: calls that one rate limits wait here for slot and permit, and leave in order (G1, Q3).

A lane never blocks its partition: requests go into its queue, and `pump` lets out what may leave.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from rowmill.plays.specs import ProviderSpec
from rowmill.streams.core.concurrency import Concurrency
from rowmill.streams.core.outcomes import Answered, Outcome, Refused
from rowmill.streams.core.pacing import Pacer
from rowmill.streams.dispatch.calls import OpenCall
from rowmill.streams.dispatch.permits import Means, Permits
from rowmill.streams.engine.tables import NotOwned
from rowmill.streams.ports import Clock

GATE_MS = 100
"""While the gate is closed a lane looks again this often."""

DOOR_MS = 5
"""While as many calls as a window admits are on their way out, the next one looks again this often."""

IN_FLIGHT_MAX = 400
"""Calls in flight of a lane whose provider declares no maximum: so many connections a worker holds well."""

Policy = tuple[tuple[tuple[int, int], ...], int, int]
"""Windows (calls, per_ms), calls in flight to begin with, and their maximum."""


class Departure:
    """One call between its lane's door and its leaving. `close` it in any case."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._open = True
        pacer.pass_door()

    def leave(self, now_ms: int) -> bool:
        """Count the call as left, unless its lane has been held meanwhile (G2)."""
        if self._pacer.held_until_ms > now_ms:
            return False
        self._open = False
        self._pacer.leave(now_ms)
        return True

    def close(self) -> None:
        """Say that it did not leave, unless it did."""
        if self._open:
            self._open = False
            self._pacer.stay()


class Lane:
    """One lane's queue in this process."""

    def __init__(
        self,
        name: str,
        pacer: Pacer,
        clock: Clock,
        send: Callable[[OpenCall], None],
        gate: Callable[[], bool],
        means: Means,
    ) -> None:
        """`gate`: whether this process may use permits now (point 3 of the architecture)."""
        self.name = name
        self.pacer = pacer
        self._permits = Permits(name, pacer, means, self.pump)
        self._concurrency: Concurrency | None = None
        self._clock = clock
        self._send = send
        self._gate = gate
        self._queue: deque[OpenCall] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, call: OpenCall) -> None:
        """Queue a call; it leaves through `send` once it has a slot and a permit."""
        self._queue.append(call)
        self.pump()

    def limit(self, windows: tuple[tuple[int, int], ...], start: int, maximum: int) -> None:
        """Take other limits from now on. `start`: calls in flight that a new lane begins with."""
        self.pacer.limit(windows, maximum)
        rate_per_s = self.pacer.rate_per_s
        if self._concurrency is None:
            self._concurrency = Concurrency(start, maximum, rate_per_s)
        else:
            self._concurrency.bound(maximum, rate_per_s)
        self.pacer.slots = self._concurrency.limit

    def heard(self, outcome: Outcome) -> None:
        """Let the calls in flight follow what came of one (Q3)."""
        if self._concurrency is None:
            return
        if isinstance(outcome, Refused) and outcome.slows:
            self._concurrency.refused(self._clock.monotonic_ms(), outcome.latency_ms)
        elif isinstance(outcome, Answered) or outcome.status_code is not None:
            self._concurrency.answered(outcome.latency_ms, self.pacer.in_flight)
        self.pacer.slots = self._concurrency.limit

    def ended(self, *, left: bool) -> None:
        """A call gave its slot back. `left`: whether it used its permit."""
        self.pacer.record_end(left=left)
        self.pump()

    def hold(self, delay_ms: int, chance: float) -> None:
        """Let nothing leave for `delay_ms`: the provider asked for it (429, Retry-After)."""
        now_ms = self._clock.monotonic_ms()
        self.pacer.widen(now_ms)
        self.pacer.hold_until(now_ms + delay_ms, chance)
        self._permits.save()

    def depart(self) -> Departure | int:
        """Let a call with a permit pass the door, or say after how many ms it should try again."""
        now_ms = self._clock.monotonic_ms()
        door_ms = self.pacer.door_ms(now_ms)
        if door_ms is None:
            return DOOR_MS
        if door_ms > now_ms:
            return door_ms - now_ms
        return Departure(self.pacer)

    def drop(self, partitions: set[int]) -> None:
        """Remove the queued calls of partitions that went to another owner (R11)."""
        self._queue = deque(call for call in self._queue if call.partition not in partitions)

    def withdraw(self, call: OpenCall) -> None:
        """Remove one queued call: it was answered meanwhile."""
        if call in self._queue:
            self._queue.remove(call)

    def pump(self) -> None:
        """Let out every call that has a slot and a permit now; come back when the next may."""
        while self._queue and self.pacer.room():
            if not self._gate():
                self._come_back(GATE_MS)
                return
            if not self._permitted(self._queue[0]):
                return
            now = self._clock.monotonic_ms()
            wait = self.pacer.earliest_ms(now) - now
            if wait > 0:
                refresh_ms = self._permits.refresh()
                self._come_back(wait if refresh_ms is None else min(wait, refresh_ms))
                return
            self.pacer.record_send(now)
            call = self._queue.popleft()
            call.permit, call.left = self._permits.use(call.partition), False
            self._send(call)

    def _permitted(self, call: OpenCall) -> bool:
        try:
            return self._permits.ready(call.partition)
        except NotOwned:
            self._come_back(GATE_MS)
            return False

    def _come_back(self, delay_ms: int) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self.pump()


class Lanes:
    """All lanes of this process, made at first use."""

    def __init__(
        self,
        clock: Clock,
        send: Callable[[OpenCall], None],
        *,
        concurrency_default: int,
        share: Callable[[], float],
        gate: Callable[[], bool],
        means: Means,
    ) -> None:
        """`share`: this worker's part, 0 to 1, of lanes that span all partitions."""
        self._lanes: dict[str, Lane] = {}
        self._policies: dict[str, Policy] = {}
        self._declared: dict[str, tuple[ProviderSpec, float]] = {}
        self._clock = clock
        self._send = send
        self._concurrency_default = concurrency_default
        self._share = share
        self._gate = gate
        self._means = means

    def __len__(self) -> int:
        """Calls queued in all lanes."""
        return sum(len(lane) for lane in self._lanes.values())

    def of(self, provider: ProviderSpec) -> Lane:
        """Return the provider's lane; limits and slots follow the newest run's declaration."""
        lane, share = self._lanes.get(provider.id), self._share()
        known, known_share = self._declared.get(provider.id, (None, share))
        if lane is not None and known is provider and known_share == share:
            return lane  # asked twice a call: working the policy out anew costs more than the queue
        self._declared[provider.id] = (provider, share)
        if lane is None:
            lane = Lane(provider.id, Pacer(), self._clock, self._send, self._gate, self._means)
            self._lanes[provider.id] = lane
        policy = self._policy(provider, share)
        if self._policies.get(provider.id) != policy:
            self._policies[provider.id] = policy
            lane.limit(*policy)
        return lane

    def drop(self, partitions: set[int]) -> None:
        """Remove the queued calls of `partitions` from every lane."""
        for lane in self._lanes.values():
            lane.drop(partitions)

    def withdraw(self, call: OpenCall) -> None:
        """Remove a call that was answered while it was queued."""
        self.of(call.provider).withdraw(call)

    def _policy(self, provider: ProviderSpec, share: float) -> Policy:
        """A lane without windows spans all partitions, so its slots are shared with the others'.

        One with windows begins at its maximum: its rate bounds it. A declared maximum is where a lane
        begins, too.
        """
        windows = tuple((rate.calls, round(rate.per_s * 1000)) for rate in provider.limits)
        maximum = provider.concurrency or max(IN_FLIGHT_MAX, self._concurrency_default)
        begin = maximum if windows else provider.concurrency or self._concurrency_default
        part = 1.0 if windows else share
        return windows, max(1, round(begin * part)), max(1, round(maximum * part))
