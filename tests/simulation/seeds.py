"""One simulated seed, from its first row to the checker's verdict."""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass

import msgspec

from rowmill.topics.catalogue import TOOL_REQUESTS
from tests.history.checker import check
from tests.history.events import History
from tests.history.finals import Finals, TopicRecord
from tests.simulation import books
from tests.simulation.plan import heal_all, plan
from tests.simulation.shape import Shape
from tests.simulation.world import Stuck, World

ENDS_WITHIN_MS = 600_000


@dataclass
class Outcome:
    """What came of a seed. `codes`: of broken promises. `simulated_ms`: true time that passed in its world."""

    seed: int
    codes: set[str]
    problems: list[str]
    events: int
    simulated_ms: float
    calls: int
    history: History


def simulate(seed: int) -> Outcome:
    """Run a seed's world to its end, and check it.

    A coroutine that is collected runs its `finally`. That must not be in the middle of another world:
    this one's are collected before it returns, when no loop runs.
    """
    gc.disable()
    try:
        return _simulated(seed)
    finally:
        gc.collect()
        gc.enable()


def _simulated(seed: int) -> Outcome:
    chance = random.Random(f"plan {seed}")
    world = World(seed, Shape.of(chance))
    healed_ms = plan(world, chance)
    problems: list[str] = []
    try:
        world.run(healed_ms, lambda: False)
        heal_all(world)
        world.run(world.now_ms + ENDS_WITHIN_MS, lambda: _over(world))
    except Stuck as error:
        problems.append(str(error))
    problems += [f"a fault of the code: {error!r}" for error in _failures(world)]
    if not problems and not _over(world):
        left = [f"{row.run}/{row.id}" for row in world.rows.rows if row.status == "open"]
        problems.append(f"not over {ENDS_WITHIN_MS / 1000:.0f} s after all was healed: {left}")
    history = History.of(world.events)
    finals = _finals(world)
    report = check(history, finals, limits=world.shape.limits)
    if not report.ok:
        problems.append(str(report))
    written = list(books.violations(history, finals, world.shape))
    problems += [f"{found.code} {found.subject}: {found.why}" for found in written]
    codes = {found.code for found in (*report.violations, *written)}
    return Outcome(
        seed, codes, problems, len(world.events), world.now_ms, world.provider.calls, history
    )


def _finals(world: World) -> Finals:
    """Return what the world left behind."""
    topics: dict[str, list[TopicRecord]] = {}
    for (topic, partition), log in world.broker.logs.items():
        found = topics.setdefault(topic, [])
        for offset, record in enumerate(log):
            value = None if record.value is None else msgspec.json.decode(record.value)
            found.append(TopicRecord(partition, offset, record.key, value, record.epoch))
    committed: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in world.broker.committed.items():
        committed.setdefault(topic, {})[partition] = offset
    asked = {
        partition: len(log)
        for (topic, partition), log in world.broker.logs.items()
        if topic == TOOL_REQUESTS.name
    }
    return Finals(topics=topics, committed=committed, ends={TOOL_REQUESTS.name: asked})


def _over(world: World) -> bool:
    """Whether every row has ended and every request is committed."""
    if not world.rows.done:
        return False
    return all(
        world.broker.committed.get((topic, partition), 0) == len(log)
        for (topic, partition), log in world.broker.logs.items()
        if topic == TOOL_REQUESTS.name
    )


def _failures(world: World) -> list[BaseException]:
    lost = [error for process in world.all_processes for error in process.loop.failures]
    return [*world.failures, *lost]
