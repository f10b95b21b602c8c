"""The faults that a seed draws from: each begins, lasts, and is healed (F codes: docs/reliability.md)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from tests.faults.seeds.provider import Mood
from tests.faults.seeds.world import World

Heal = Callable[[], None]


@dataclass(frozen=True)
class Fault:
    """One kind. `begin` makes the trouble and returns what heals it. `weight`: how often it is drawn."""

    code: str
    kind: str
    weight: int
    length_s: tuple[float, float]
    begin: Callable[[World, Any], Heal]
    targets: tuple[str, ...] = ()
    spoils_keys: bool = False
    """Without idempotency keys it leaves outcomes unknown."""


def kill(world: World, name: str) -> Heal:
    """F1, F2: kill -9; the world starts it again once this is healed."""
    by, worker = world.by(name), world.workers[name]
    world.frozen.add(name)
    if worker.process.poll() is None:
        worker.kill_9()
        world.note("killed", target=by)
    return lambda: world.frozen.discard(name)


def kill_all(world: World, _: Any) -> Heal:
    """F3: every worker at once."""
    heals = [kill(world, name) for name in world.workers if name not in world.frozen]

    def heal() -> None:
        for each in heals:
            each()

    return heal


def stop(world: World, name: str) -> Heal:
    """F5: a planned stop; calls that are open end first."""
    world.frozen.add(name)
    world.workers[name].terminate()
    return lambda: world.frozen.discard(name)


def freeze(world: World, name: str) -> Heal:
    """F6, F7: SIGSTOP for longer or shorter than a lease."""
    by, worker = world.by(name), world.workers[name]
    if worker.process.poll() is not None:
        return lambda: None
    world.frozen.add(name)
    world.note("frozen", target=by)
    worker.freeze()

    def heal() -> None:
        world.note("thawed", target=by)
        worker.thaw()
        world.frozen.discard(name)

    return heal


def cut(world: World, how: str) -> Heal:
    """F16, F17, F18: one worker's way to the broker is held, reset, or loses its answers."""
    proxy = world.broker.proxy
    world.note_cut(how)
    {"hold": proxy.hold, "answers": proxy.hold_answers, "reset": proxy.cut}[how]()

    def heal() -> None:
        proxy.release()
        proxy.mend()
        world.note_mended()

    return heal


def resets(world: World, _: Any) -> Heal:
    """F18: the connections of one worker are reset every 2 s, and come back at once."""
    over = threading.Event()

    def reset() -> None:
        while not over.wait(2):
            world.broker.proxy.cut()
            world.broker.proxy.mend()

    thread = threading.Thread(target=reset, daemon=True)
    thread.start()
    world.note_cut("resets")

    def heal() -> None:
        over.set()
        thread.join()
        world.note_mended()

    return heal


def kill_broker(world: World, _: Any) -> Heal:
    """F12 with one node: it is killed, and started again on its data."""
    world.broker.kill_9()
    return lambda: _start(world)


def freeze_broker(world: World, _: Any) -> Heal:
    """F12: it answers nobody for a while."""
    world.broker.freeze()
    return world.broker.thaw


def _start(world: World) -> None:
    world.broker.start()


def lock_sheet(world: World, _: Any) -> Heal:
    """F28: somebody else writes into the sheet, and takes their time."""
    path = world.home / "sheet.sqlite"
    if not path.exists():
        return lambda: None
    connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("begin immediate")
    except sqlite3.OperationalError:
        connection.close()
        return lambda: None

    def heal() -> None:
        connection.execute("rollback")
        connection.close()

    return heal


def move_clock(world: World, target: str) -> Heal:
    """F30: one worker's wall clock is put forwards or back; it excuses nothing."""
    if world.clock is None:
        return lambda: None
    world.clock.move(float(target.split()[-2]))
    return lambda: world.clock.move(0) if world.clock else None


def mood(**changes: float) -> Callable[[World, Any], Heal]:
    """F32-F35, F39: the provider behaves so for a while."""

    def begin(world: World, _: Any) -> Heal:
        for name, value in changes.items():
            setattr(world.provider.mood, name, value)

        def heal() -> None:
            for each in fields(Mood):
                if each.name in changes:
                    setattr(world.provider.mood, each.name, each.default)

        return heal

    return begin


CALLERS = ("dispatch-0", "dispatch-1")
CLOCKS = ("clock of dispatch-0 by +120 s", "clock of dispatch-0 by -30 s")
WORKERS = (*CALLERS, "rows-0", "rows-1", "sink-0")

FAULTS = (
    Fault("F1", "kill dispatch", 6, (0.2, 4), kill, CALLERS, spoils_keys=True),
    Fault("F2", "kill rows or sink", 5, (0.2, 4), kill, ("rows-0", "rows-1", "sink-0")),
    Fault("F3", "kill all workers", 1, (0.2, 2), kill_all, spoils_keys=True),
    Fault("F5", "planned restart", 3, (0.5, 3), stop, WORKERS),
    Fault("F6", "freeze past the lease", 3, (7, 11), freeze, WORKERS, spoils_keys=True),
    Fault("F7", "short freeze", 3, (0.3, 3), freeze, WORKERS),
    Fault("F12", "kill the broker", 2, (0.5, 3), kill_broker),
    Fault("F12", "freeze the broker", 1, (1, 6), freeze_broker, spoils_keys=True),
    Fault("F16", "cut one worker off", 3, (1, 12), cut, ("hold", "reset"), spoils_keys=True),
    Fault("F17", "lose answers of Kafka", 2, (1, 9), cut, ("answers",), spoils_keys=True),
    Fault("F18", "resets every 2 s", 2, (3, 9), resets),
    Fault("F28", "lock the sheet", 2, (1, 8), lock_sheet),
    Fault("F30", "move the", 2, (2, 12), move_clock, CLOCKS),
    Fault("F32", "provider hangs", 2, (1, 4), mood(hang=0.2), spoils_keys=True),
    Fault("F32", "one byte a second", 1, (1, 4), mood(trickle=0.2), spoils_keys=True),
    Fault("F33", "reset before booking", 2, (1, 4), mood(reset_before=0.3), spoils_keys=True),
    Fault("F33", "reset after booking", 2, (1, 4), mood(reset_after=0.3), spoils_keys=True),
    Fault("F34", "provider is busy", 2, (1, 4), mood(refuse=0.3), spoils_keys=True),
    Fault("F35", "storm of 429", 3, (1, 4), mood(storm=0.5)),
    Fault("F39", "provider is slow", 1, (1, 4), mood(slow=10.0), spoils_keys=True),
)
