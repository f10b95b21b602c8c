"""What happens to the processes of a simulated seed: deaths, standstills, cuts, and their ends."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.process import Process
from tests.simulation.service import CALM, LATENCIES_MS, Mood
from tests.simulation.shape import CLOCK_JUMPS_MS
from tests.simulation.world import ANYBODY, World

SPAN_MS = 60_000
KINDS = {
    "kill": 5, "freeze": 4, "cut": 4, "lose answers": 2, "stop": 2, "broker down": 2,
    "kill rows": 2, "storm": 2, "breakage": 2, "poison": 1, "clock": 2, "slow": 3,
    "trap": 4, "back at takeover": 3,
}  # fmt: skip
TRAPS = (
    "claimed",
    "running",
    "running",
    "running",
    "sent",
    "heard",
    "kept",
    "taken_over",
    "taken",
    "given_up",
    "told",
)
"""Events after which a process is caught."""

LENGTHS_MS = (200, 2_000, 6_000, 12_000, 15_000, 25_000)


def plan(world: World, chance: random.Random) -> float:
    """Put a seed's faults into its world. Returns: the true time from which all is healed, ms."""
    healed_ms = 0.0
    kinds = chance.choices(list(KINDS), list(KINDS.values()), k=chance.randint(2, 8))
    kinds = [kind for kind in kinds if kind != "clock" or world.shape.jumps]
    at_ms = 0.0
    for kind in kinds:
        at_ms += 0 if chance.random() < 0.25 else chance.expovariate(len(kinds) / SPAN_MS)
        length_ms = chance.choice(LENGTHS_MS) * (0.5 + chance.random())
        if kind == "back at takeover":
            length_ms = LENGTHS_MS[-1] * 1.5
        instance = chance.choice(sorted(world.processes))
        world.at(at_ms, partial(_begin, world, kind, instance, length_ms))
        healed_ms = max(healed_ms, at_ms + length_ms)
    for _ in range(chance.randint(1, 6) if world.shape.forgets else 0):
        world.at(chance.uniform(0, SPAN_MS), world.rows.forget)
    return healed_ms + 1


def heal_all(world: World) -> None:
    """Let everybody live, run and be heard."""
    world.calm = True
    world.traps.clear()
    world.broker.down = False
    world.provider.mood = CALM
    for instance in sorted(world._clocks):
        world.start(instance)
    for process in world.processes.values():
        _thaw(world, process)
        _mend(world, process)
        process.link.flow()
    world.rows.link.flow()
    world.note("runner-0", "calm")


def _begin(world: World, kind: str, instance: str, length_ms: float) -> None:
    world.note("runner-0", "fault", kind=kind, target=_target(world, kind, instance))
    heal = _FAULTS[kind](world, instance)

    def end() -> None:
        heal()
        world.note("runner-0", "healed", kind=kind, target=_target(world, kind, instance))

    world.after(length_ms, end)


def _target(world: World, kind: str, instance: str) -> str:
    if kind in ("broker down",):
        return "kafka"
    if kind in ("storm", "breakage", "poison", "slow"):
        return "provider"
    process = world.processes.get(instance)
    return process.by if process is not None else instance


def _kill(world: World, instance: str) -> Callable[[], None]:
    world.kill(instance)
    return lambda: world.start(instance)


def _freeze(world: World, instance: str) -> Callable[[], None]:
    process = world.processes.get(instance)
    if process is None or process.frozen:
        return lambda: None
    process.frozen = True
    world.note("runner-0", "frozen", target=process.by)
    return lambda: _thaw(world, process)


def _trap(world: World, instance: str) -> Callable[[], None]:
    """Kill or freeze it right after the next event of some kind, in the midst of its work."""
    process = world.processes.get(instance)
    if process is None:
        return lambda: None
    event = world.chance.choice(TRAPS)
    kill = world.chance.random() < 0.3

    def begin() -> None:
        if kill:
            world.kill_for_a_while(instance)
        else:
            _freeze(world, instance)

    def spring() -> None:
        process.loop.halted = True
        world.at(world.now_ms, begin)

    world.traps[process.by, event] = spring

    def end() -> None:
        world.traps.pop((process.by, event), None)
        _thaw(world, process)

    return end


def _back_at_takeover(world: World, instance: str) -> Callable[[], None]:
    """Freeze it or cut it off until somebody takes over a call of it, and let it back just then."""
    begin = _freeze if world.chance.random() < 0.5 else _cut
    end = begin(world, instance)
    place = (ANYBODY, "taken_over")
    world.traps[place] = lambda: world.after(world.chance.choice((0, 5, 50, 500)), end)

    def heal() -> None:
        world.traps.pop(place, None)
        end()

    return heal


def _thaw(world: World, process: Process) -> None:
    if process.frozen and process.alive:
        process.frozen = process.loop.halted = False
        world.note("runner-0", "thawed", target=process.by)
        if world.chance.random() < 0.5:  # its timers go off before it reads its sockets
            waiting = list(process.loop.ready)
            process.loop.ready.clear()
            process.loop.wake()
            process.loop.ready.extend(waiting)


def _cut(world: World, instance: str) -> Callable[[], None]:
    return _cut_link(world, instance, "open")


def _lose_answers(world: World, instance: str) -> Callable[[], None]:
    return _cut_link(world, instance, "answers_pass")


def _cut_link(world: World, instance: str, what: str) -> Callable[[], None]:
    process = world.processes.get(instance)
    if process is None:
        return lambda: None
    setattr(process.link, what, False)
    world.note("runner-0", "cut", target=process.by)
    return lambda: _mend(world, process)


def _mend(world: World, process: Process) -> None:
    if not (process.link.open and process.link.answers_pass) and process.alive:
        world.note("runner-0", "mended", target=process.by)
        process.link.mend()


def _stop(world: World, instance: str) -> Callable[[], None]:
    process = world.processes.get(instance)
    if process is not None and not process.app.stopping:
        process.loop.call_soon(lambda: process.app.spawn(process.app.stop()))
    return lambda: world.start(instance)


def _broker_down(world: World, _: str) -> Callable[[], None]:
    world.broker.down = True

    def up() -> None:
        world.broker.down = False
        for member in world.broker.members.values():
            member.heard_ms = world.now_ms  # sessions begin anew with the coordinator
        for process in world.processes.values():
            process.link.flow()
        world.rows.link.flow()

    return up


def _kill_rows(world: World, _: str) -> Callable[[], None]:
    return world.rows.restart


def _clock(world: World, instance: str) -> Callable[[], None]:
    """Move its wall clock; where it had been is where it goes back to."""
    before_ms = world.wall_off_ms[instance]
    world.wall_off_ms[instance] += world.chance.uniform(*CLOCK_JUMPS_MS)

    def back() -> None:
        world.wall_off_ms[instance] = before_ms

    return back


def _poison(world: World, _: str) -> Callable[[], None]:
    question = f"second-{world.chance.randrange(3)}"
    return _mood(poison=question, latencies_ms=LATENCIES_MS[-2:])(world, "")


def _mood(**changes: Any) -> Callable[[World, str], Callable[[], None]]:
    def begin(world: World, _: str) -> Callable[[], None]:
        world.provider.mood = Mood(**changes)

        def end() -> None:
            world.provider.mood = Mood()

        return end

    return begin


_FAULTS: dict[str, Any] = {
    "kill": _kill,
    "freeze": _freeze,
    "cut": _cut,
    "lose answers": _lose_answers,
    "stop": _stop,
    "broker down": _broker_down,
    "kill rows": _kill_rows,
    "clock": _clock,
    "poison": _poison,
    "trap": _trap,
    "back at takeover": _back_at_takeover,
    "slow": _mood(latencies_ms=LATENCIES_MS[-3:]),
    "storm": _mood(storm=0.5),
    "breakage": _mood(reset_before=0.15, reset_after=0.15, busy=0.15, hang=0.1),
}
