"""A process as far as receipts go: its clock, what is ready to run, its timers, its wire.

Code that awaits in `streams/dispatch` is a generator here that yields promises, so a test may put
anything between a write and its acknowledgement, an acknowledgement and what follows from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class Time:
    """What passes everywhere; each process reads it through a clock of its own."""

    now_ms: float = 0.0


class Promise:
    """A future: what waits for it runs at its process's next turn, not at once."""

    def __init__(self, ready: deque[Callable[[], None]]) -> None:
        self._ready = ready
        self._then: list[Callable[[Promise], None]] = []
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        """Resolve, or fail; the first one counts."""
        if self.done:
            return
        self.done, self.value, self.error = True, value, error
        for callback in self._then:
            self._later(callback)

    def then(self, callback: Callable[[Promise], None]) -> None:
        """Run `callback` once this is done."""
        if self.done:
            self._later(callback)
        else:
            self._then.append(callback)

    def _later(self, callback: Callable[[Promise], None]) -> None:
        self._ready.append(lambda: callback(self))


Steps = Generator[Promise, Any, T]
"""A coroutine: yields what it awaits."""


@dataclass(eq=False)
class Record:
    """A record on its way to the broker: what it does there, and who hears that it did."""

    arrive: Callable[[], None]
    acknowledged: Promise


@dataclass(eq=False)
class Process:
    """`rate`, `offset`: of its clock, monotonic and wall. `wire`: its records, in order.

    A frozen process (SIGSTOP) runs nothing, but its records arrive: they lie in the socket. A cut off
    one runs, and nothing of it arrives.
    """

    instance: str
    time: Time
    rate: float
    offset: float
    alive: bool = True
    frozen: bool = False
    connected: bool = True
    ready: deque[Callable[[], None]] = field(default_factory=deque)
    timers: list[tuple[float, Promise]] = field(default_factory=list)
    wire: deque[Record] = field(default_factory=deque)

    @property
    def acts(self) -> bool:
        """True while its code runs."""
        return self.alive and not self.frozen

    @property
    def reachable(self) -> bool:
        """True while it runs and talks with the broker."""
        return self.acts and self.connected

    def clock(self) -> int:
        """Return its own milliseconds."""
        return round(self.offset + self.rate * self.time.now_ms)

    def promise(self) -> Promise:
        """Return something to wait for in this process."""
        return Promise(self.ready)

    def at(self, when_ms: float) -> Promise:
        """Return a promise that a timer keeps."""
        due = self.promise()
        self.timers.append((when_ms, due))
        return due

    def send(self, arrive: Callable[[], None]) -> Promise:
        """Put a record on the wire."""
        record = Record(arrive, self.promise())
        self.wire.append(record)
        return record.acknowledged

    def spawn(self, steps: Steps[Any]) -> None:
        """Start a task; it runs up to its first wait."""
        self._advance(steps, None)

    def deliver(self) -> None:
        """Let the oldest record arrive."""
        if self.alive and self.connected and self.wire:
            record = self.wire.popleft()
            record.arrive()
            record.acknowledged.settle()
            self.turn()

    def turn(self) -> None:
        """Run what is ready, while it runs at all."""
        while self.acts and self.ready:
            self.ready.popleft()()

    def ring(self) -> None:
        """Let the timers go off that are due."""
        if self.acts:
            due = [timer for timer in self.timers if timer[0] <= self.clock()]
            self.timers = [timer for timer in self.timers if timer not in due]
            for _, promise in sorted(due, key=lambda timer: timer[0]):
                promise.settle()
            self.turn()

    def die(self) -> list[Record]:
        """End as by kill -9. Returns: what may still lie in a socket."""
        left = list(self.wire)
        self.alive = self.frozen = False
        for waiting in (self.ready, self.timers, self.wire):
            waiting.clear()
        return left

    def _advance(self, steps: Steps[Any], done: Promise | None) -> None:
        try:
            if done is not None and done.error is not None:
                waits = steps.throw(done.error)
            else:
                waits = steps.send(None if done is None else done.value)
        except StopIteration:
            return
        waits.then(lambda settled: self._advance(steps, settled))
