"""One simulated seed, from its first row to the checker's verdict."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rowmill.topics.catalogue import TOOL_REQUESTS
from tests.history.checker import check
from tests.history.events import History
from tests.history.invariant import Limits, Window
from tests.history.report import Report
from tests.simulation.asking import (
    FREE_CONCURRENCY,
    KEY_LIFETIME_S,
    PACED_CALLS,
    PACED_CONCURRENCY,
    PACED_MS,
)
from tests.simulation.plan import heal_all, plan
from tests.simulation.process import SETTINGS
from tests.simulation.world import Stuck, World

ENDS_WITHIN_MS = 600_000

LIMITS = Limits(
    windows={"paced": (Window(PACED_CALLS, PACED_MS),)},
    concurrency={"paced": PACED_CONCURRENCY, "free": FREE_CONCURRENCY},
    lease_ms=round(SETTINGS.lease_s * 1000),
    session_ms=round(SETTINGS.session_timeout_s * 1000),
    key_lifetime_ms={"paced.second": round(KEY_LIFETIME_S * 1000)},
)


@dataclass
class Outcome:
    """What came of a seed. `simulated_ms`: true time that passed in its world."""

    seed: int
    report: Report | None
    problems: list[str]
    events: int
    simulated_ms: float
    calls: int
    history: History


def simulate(seed: int) -> Outcome:
    """Run a seed's world to its end, and check it."""
    chance = random.Random(f"plan {seed}")
    world = World(
        seed,
        dispatchers=chance.choice((2, 2, 3)),
        rows=chance.randint(6, 16),
        open_max=chance.randint(3, 8),
    )
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
    report = check(history, limits=LIMITS)
    if not report.ok:
        problems.append(str(report))
    return Outcome(
        seed, report, problems, len(world.events), world.now_ms, world.provider.calls, history
    )


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
    lost = [error for process in world.processes.values() for error in process.loop.failures]
    return [*world.failures, *lost]
