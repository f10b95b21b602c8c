"""One simulated dispatch process: the real role on a simulated engine, with a clock of its own."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from rowmill.streams.adapters.log_reader import LogRecord
from rowmill.streams.dispatch.app import Dispatch
from tests.simulation.app import SimApp
from tests.simulation.kafka import Link
from tests.simulation.looping import SimLoop

if TYPE_CHECKING:
    from tests.simulation.world import World

BEGIN_WALL_MS = 1_700_000_000_000
NEVER_MS = float("inf")


class Process:
    """A process of the role. `rate`, `offset_ms`: how its clock runs against the true time."""

    def __init__(self, world: World, instance: str, rate: float, offset_ms: float) -> None:
        self.world = world
        self.instance = instance
        self.rate = rate
        self.offset_ms = offset_ms
        self.chance = random.Random(world.chance.random())
        self.alive = True
        self.frozen = False
        self.held_up_until_ms = 0.0
        self.number = world.next_number()
        self.by = f"dispatch-{self.number}"
        self.loop = SimLoop(self.local_s)
        self.link = Link(world, self, self.chance)
        self.app = SimApp(self)
        self.dispatch = Dispatch(
            world.settings,
            self.app,  # type: ignore[arg-type]  # it has what the role uses
            provider=world.provider.of(self),
            clock=self,
            new_id=lambda: f"{self.number}.{self.chance.getrandbits(40):x}",
            chance=self.chance.random,
        )
        for offset, (key, value) in enumerate(world.runs):
            self.dispatch.on_run(LogRecord(0, offset, key, value, 0, ()))
        self.loop.call_soon(self.app.start)
        self.loop.call_soon(lambda: self.app.spawn(self.dispatch.sweep()))

    @property
    def runs(self) -> bool:
        """Whether it has something to do now, and may."""
        if self.frozen or not self.loop.ready:
            return False
        return self.held_up_until_ms <= self.world.now_ms

    def next_ms(self) -> float:
        """Return the true time at which it has something to do."""
        if self.frozen:
            return NEVER_MS
        if self.held_up_until_ms > self.world.now_ms:
            return self.held_up_until_ms
        timer_s = self.loop.next_timer_s()
        return NEVER_MS if timer_s is None else (timer_s * 1000 - self.offset_ms) / self.rate

    def local_ms(self) -> float:
        """Return its monotonic clock, ms."""
        return self.offset_ms + self.rate * self.world.now_ms

    def local_s(self) -> float:
        """Return its monotonic clock, s."""
        return (self.offset_ms + self.rate * self.world.now_ms) / 1000

    def true_ms(self, local_ms: float) -> float:
        """Return the true time at which its clock shows that."""
        return (local_ms - self.offset_ms) / self.rate

    def monotonic_ms(self) -> int:
        """Fulfil `ports.Clock`."""
        return int(self.local_ms())

    def wall_ms(self) -> int:
        """Fulfil `ports.Clock`: the time of day, as far as its machine's clock is right."""
        world = self.world
        return BEGIN_WALL_MS + int(world.now_ms * self.rate + world.wall_off_ms[self.instance])

    def note(self, event: str, **fields: Any) -> None:
        """Fulfil `ports.Note`: times of its own clock become true ones."""
        for name in ("expires", "until"):
            if name in fields:
                fields[name] = round(self.true_ms(fields[name] / 1e6) * 1e6)
        self.world.note(self.by, event, **fields)

    def assigned(self, share: set[int], generation: int, synced_s: float) -> None:
        """The group gives it partitions."""
        self.app.assigned(share, generation, synced_s)
