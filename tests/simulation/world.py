"""The simulated world: true time, what happens when, who runs next. All of it follows from a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from rowmill.topics.catalogue import PROVIDER_RESULTS, TOOL_REQUESTS
from tests.history.events import Event
from tests.simulation.asking import Rows
from tests.simulation.kafka import Broker, Record
from tests.simulation.process import Process
from tests.simulation.service import Service
from tests.simulation.shape import Shape

ANYBODY = ""
STEPS_MAX = 400_000
CALLBACKS_MAX = 10_000
EXPIRE_EVERY_MS = 1_000
HELD_UP_PART = 0.03
HELD_UP_MS = (0.1, 3, 40, 300)
"""A process is held up by its machine, its garbage, its disk."""

RESTART_MS = 1_000


class Stuck(Exception):
    """Nothing is left to happen, or everything happens without end."""


class World:
    """Processes, broker, provider and rows. `run` goes on until all is done or time is up."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.shape = shape
        self.settings = shape.settings
        self.chance = random.Random(f"simulation {seed}")
        self.now_ms = 0.0
        self.events: list[Event] = []
        self.calm = False
        self.traps: dict[tuple[str, str], Callable[[], None]] = {}
        """By process (or anybody) and event: what happens right after it."""
        self._noted_ns = 0
        self.failures: list[BaseException] = []
        self._happenings: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.broker = Broker(self, shape.partitions, self._own_chance())
        self.provider = Service(self, self._own_chance())
        self.rows = Rows(self, self._own_chance(), shape)
        self.runs = shape.run_records()
        self._readers: dict[int, list[tuple[int, Callable[[], None]]]] = {}
        self.processes: dict[str, Process] = {}
        # Kept: a coroutine that is collected runs its `finally`, which a dead process does not.
        self._dead: list[Process] = []
        self._clocks = {
            f"i{number}": (1 + self.chance.uniform(-0.0003, 0.0003), self.chance.uniform(0, 1e6))
            for number in range(shape.dispatchers)
        }
        self.wall_off_ms = {instance: self.chance.uniform(-50, 50) for instance in self._clocks}
        for instance in self._clocks:
            self.start(instance)
        self.rows.admit()
        self._expire()

    def next_number(self) -> int:
        """Return a number that was never given."""
        self._number += 1
        return self._number

    def note(self, by: str, event: str, **fields: Any) -> None:
        """Write the history. No two events have one time: their order would be anybody's guess."""
        self._noted_ns = max(round(self.now_ms * 1e6), self._noted_ns + 1)
        self.events.append({"at": self._noted_ns, "by": by, "event": event, **fields})
        if self.traps:
            for place in ((by, event), (ANYBODY, event)):
                if (trap := self.traps.pop(place, None)) is not None:
                    trap()

    # --- time ------------------------------------------------------------------------------------------

    def at(self, when_ms: float, happen: Callable[[], None]) -> None:
        """Let something happen at a true time."""
        heapq.heappush(self._happenings, (when_ms, self.next_number(), happen))

    def after(self, delay_ms: float, happen: Callable[[], None]) -> None:
        """Let something happen later."""
        self.at(self.now_ms + delay_ms, happen)

    def run(self, until_ms: float, over: Callable[[], bool]) -> None:
        """Go on until `over` or the time. Raises: Stuck."""
        for step in range(STEPS_MAX):
            if self.failures or (step % 50 == 0 and over()):
                return
            running = [process for process in self.processes.values() if process.runs]
            if running:
                self._let_run(running[int(self.chance.random() * len(running))])
            elif not self._advance(until_ms):
                return
        raise Stuck(f"{STEPS_MAX:,} steps without an end, at {self.now_ms:,.0f} ms")

    def _let_run(self, process: Process) -> None:
        """Let a process run: until it waits, or now and then for some callbacks, and it is held up.

        While it is held up it may be killed or frozen, with half of its work done.
        """
        if self.calm or self.chance.random() > HELD_UP_PART:
            process.loop.run(CALLBACKS_MAX)
        else:
            process.loop.run(self.chance.randint(1, 4))
            process.held_up_until_ms = self.now_ms + self.chance.choice(HELD_UP_MS)

    def _advance(self, until_ms: float) -> bool:
        """Go to the next moment at which something happens. Returns: False where time is up."""
        happenings, processes = self._happenings, self.processes
        next_ms = happenings[0][0]
        timers = [(process.next_ms(), process) for process in processes.values()]
        for due_ms, _ in timers:
            next_ms = min(due_ms, next_ms)
        if next_ms > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        now_ms = self.now_ms = max(self.now_ms, next_ms)
        while happenings and happenings[0][0] <= now_ms:
            heapq.heappop(happenings)[2]()
        for due_ms, process in timers:
            if due_ms <= now_ms and not process.frozen:
                process.loop.wake()
        return True

    def _expire(self) -> None:
        if not self.broker.down:
            self.broker.expire()
        self.after(EXPIRE_EVERY_MS, self._expire)

    # --- topics ----------------------------------------------------------------------------------------

    def appended(self, topic: str, partition: int, record: Record) -> None:
        """A record lies in a log: tell who waits for it."""
        if topic == PROVIDER_RESULTS.name:
            self.rows.link.answer((topic, partition), lambda: self.rows.result(record))
        elif topic == TOOL_REQUESTS.name:
            for _, ready in self._readers.pop(partition, ()):
                ready()

    def wait_for_records(self, partition: int, begin: int, ready: Callable[[], None]) -> None:
        """Call `ready` once the partition of requests has records from `begin` on."""
        if len(self.broker.log(TOOL_REQUESTS.name, partition)) > begin:
            ready()
        else:
            self._readers.setdefault(partition, []).append((begin, ready))

    # --- processes -------------------------------------------------------------------------------------

    @property
    def all_processes(self) -> list[Process]:
        """Those that live and those that have died."""
        return [*self.processes.values(), *self._dead]

    def start(self, instance: str) -> None:
        """Start a process of an instance, unless it lives."""
        if instance not in self.processes:
            self.processes[instance] = Process(self, instance, *self._clocks[instance])

    def kill(self, instance: str) -> None:
        """kill -9."""
        process = self.processes.pop(instance, None)
        if process is not None:
            process.alive = False
            self._dead.append(process)
            self.note("runner-0", "killed", target=process.by)

    def kill_for_a_while(self, instance: str) -> None:
        """kill -9; its supervisor starts it again."""
        self.kill(instance)
        self.after(RESTART_MS, lambda: self.start(instance))

    def ended(self, process: Process) -> None:
        """A process has ended by itself; its supervisor starts it again."""
        process.alive = False
        self._dead.append(process)
        if self.processes.get(process.instance) is process:
            del self.processes[process.instance]
            self.after(RESTART_MS, lambda: self.start(process.instance))

    def _own_chance(self) -> random.Random:
        return random.Random(self.chance.random())
