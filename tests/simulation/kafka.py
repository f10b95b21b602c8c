"""The simulated broker: logs, one consumer group, and what a network does to both."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.shape import SESSION_S

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

SESSION_MS = SESSION_S * 1000
REBALANCE_MS = 20_000
Place = tuple[str, int]
Way = tuple[str, int]
GROUP: Way = ("group", 0)
"""The way to the group's coordinator and back."""
RECOVERY: Way = ("recovery", 0)
"""The way of a reader of changelogs."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a log. `epoch`: of a changelog's record."""

    key: str
    value: bytes | None
    epoch: int = 0


@dataclass
class Member:
    """A member of the group, in the coordinator's eyes. `heard_ms`: true time."""

    process: Process
    heard_ms: float
    joined: bool = False


@dataclass
class Broker:
    """Logs and the group `dispatch`. While it is `down` nothing reaches it; what it has it keeps."""

    world: World
    partitions: int
    chance: random.Random
    logs: dict[Place, list[Record]] = field(default_factory=dict)
    committed: dict[Place, int] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0
    joining: bool = False
    down: bool = False
    _round: int = 0

    def log(self, topic: str, partition: int) -> list[Record]:
        """Return a partition's log."""
        return self.logs.setdefault((topic, partition), [])

    def append(self, topic: str, partition: int, record: Record) -> int:
        """Take a record; return its offset."""
        log = self.log(topic, partition)
        log.append(record)
        return len(log) - 1

    # --- the group ---------------------------------------------------------------------------------

    def join(self, process: Process) -> None:
        """A member joins, or joins again. A known instance within its session causes no rebalance."""
        known = self.members.get(process.instance)
        now_ms = self.world.now_ms
        if known is not None and known.process is not process and not self.joining:
            self.members[process.instance] = Member(process, now_ms, joined=True)
            self._assign_to(process)  # static membership: a restarted one gets its partitions back
            return
        self.members[process.instance] = Member(process, now_ms, joined=True)
        if not self.joining:
            self._begin_rebalance(but=process.instance)
        self._finish_if_all_joined()

    def leave(self, process: Process) -> None:
        """A member leaves by itself."""
        if self._is(process):
            del self.members[process.instance]
            self._begin_rebalance()
            self._finish_if_all_joined()

    def heartbeat(self, process: Process, generation: int) -> str:
        """Return `ok`, `rebalance` or `unknown`."""
        if not self._is(process):
            return "unknown"
        member = self.members[process.instance]
        member.heard_ms = self.world.now_ms
        if self.joining and not member.joined:
            return "rebalance"
        return "ok" if generation == self.generation and not self.joining else "rebalance"

    def commit(self, process: Process, generation: int, offsets: dict[Place, int]) -> bool:
        """Take a member's commit, unless its generation is over."""
        if not self._is(process) or generation != self.generation:
            return False
        self.committed.update(offsets)
        return True

    def expire(self) -> None:
        """Drop members that were not heard of for a session."""
        now_ms = self.world.now_ms
        gone = [
            instance
            for instance, member in self.members.items()
            if now_ms - member.heard_ms > SESSION_MS
        ]
        for instance in gone:
            del self.members[instance]
        if gone:
            self._begin_rebalance()
            self._finish_if_all_joined()

    def _is(self, process: Process) -> bool:
        member = self.members.get(process.instance)
        return member is not None and member.process is process

    def _begin_rebalance(self, but: str | None = None) -> None:
        if not self.joining:
            self.joining = True
            for instance, member in self.members.items():
                member.joined = instance == but
        self._round += 1
        self.world.after(REBALANCE_MS, partial(self._time_is_up, self._round))

    def _time_is_up(self, number: int) -> None:
        if self.joining and number == self._round:
            for instance in [key for key, member in self.members.items() if not member.joined]:
                del self.members[instance]
            self._finish_if_all_joined()

    def _finish_if_all_joined(self) -> None:
        if not self.joining or not all(member.joined for member in self.members.values()):
            return
        self.joining = False
        self.generation += 1
        for member in list(self.members.values()):
            member.heard_ms = self.world.now_ms
            self._assign_to(member.process)

    def _assign_to(self, process: Process) -> None:
        names = sorted(self.members)
        place = names.index(process.instance)
        share = {one for one in range(self.partitions) if one % len(names) == place}
        generation, synced_s = self.generation, process.local_ms() / 1000
        process.link.answer(GROUP, lambda: process.assigned(share, generation, synced_s))


class Link:
    """A process's way to the broker and back. Held back: `open` is False, or the broker is down.

    What goes one `way` (a connection, or a partition's batches) keeps its order.
    """

    def __init__(self, world: World, process: Process, chance: random.Random) -> None:
        self._world = world
        self._process = process
        self._chance = chance
        self.open = True
        self.answers_pass = True
        self._out: list[tuple[Way, Any]] = []
        self._back: list[tuple[Way, Any]] = []
        self._last_out_ms: dict[Way, float] = {}
        self._last_back_ms: dict[Way, float] = {}

    def send(self, way: Way, arrive: Any) -> None:
        """Let `arrive` happen at the broker, in the order of the calls."""
        if not self.open or self._world.broker.down or self._out:
            self._out.append((way, arrive))
            return
        at_ms = self._later_ms(self._last_out_ms, way)
        self._world.at(at_ms, lambda: self._arrived(way, arrive))

    def answer(self, way: Way, happen: Any) -> None:
        """Let `happen` run in the process, in the order of the calls, if it still lives."""
        if not self.open or not self.answers_pass or self._back:
            self._back.append((way, happen))
            return
        at_ms = self._later_ms(self._last_back_ms, way)
        self._world.at(at_ms, lambda: self._came_back(happen))

    def mend(self) -> None:
        """Pass on what was held back."""
        self.open = self.answers_pass = True
        self.flow()

    def flow(self) -> None:
        """Pass on what may pass now."""
        out, self._out = self._out, []
        for held in out:
            self.send(*held)
        back, self._back = self._back, []
        for held in back:
            self.answer(*held)

    def _arrived(self, way: Way, arrive: Any) -> None:
        if self._world.broker.down:
            self._out.append((way, arrive))
        else:
            arrive()

    def _came_back(self, happen: Any) -> None:
        if self._process.alive:
            self._process.loop.call_soon(happen)

    def _later_ms(self, last_ms: dict[Way, float], way: Way) -> float:
        way_ms = self._chance.choice((0.2, 1.0, 1.0, 3.0, 20.0))
        at_ms = last_ms[way] = max(last_ms.get(way, 0.0), self._world.now_ms) + way_ms
        return at_ms
