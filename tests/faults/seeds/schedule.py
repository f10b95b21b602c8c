"""Which faults a seed has, when, and for how long: the same for the same seed, on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.faults.seeds.faults import FAULTS, Fault
from tests.faults.seeds.shape import SHAPES, Shape

BEGINS_S = 1.5
SPAN_S = 14.0
"""From the first rows to the last fault's beginning: as long as the rows of a calm run take."""

FAULTS_MIN, FAULTS_MAX = 4, 9
BURST = 0.3
"""Part of the faults that begin together with the one before."""


@dataclass(frozen=True)
class Planned:
    """One fault of a schedule. Times in seconds since the run began."""

    at_s: float
    length_s: float
    fault: Fault
    target: str | None

    def __str__(self) -> str:
        what = f"{self.fault.kind} {self.target}" if self.target else self.fault.kind
        return f"{self.at_s:5.1f} s  {self.fault.code:4} {what}, for {self.length_s:.1f} s"


@dataclass(frozen=True)
class Schedule:
    """A seed's input and faults, in order."""

    seed: int
    shape: Shape
    faults: tuple[Planned, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: shape {self.shape.number}, {self.shape.rows} rows"]
        return "\n".join([*lines, *map(str, self.faults)])


def schedule_of(seed: int) -> Schedule:
    """Draw a seed's schedule."""
    chance = random.Random(f"schedule {seed}")
    weights = [fault.weight for fault in FAULTS]
    planned: list[Planned] = []
    at_s = BEGINS_S
    count = chance.randint(FAULTS_MIN, FAULTS_MAX)
    for _ in range(count):
        (fault,) = chance.choices(FAULTS, weights)
        target = chance.choice(fault.targets) if fault.targets else None
        if not planned or chance.random() >= BURST:
            at_s += chance.expovariate(count / SPAN_S)
        planned.append(Planned(min(at_s, SPAN_S), chance.uniform(*fault.length_s), fault, target))
    return Schedule(seed, Shape(seed % SHAPES), _apart(planned))


def _apart(planned: list[Planned]) -> tuple[Planned, ...]:
    """Leave out what would hit a target that another fault still holds."""
    kept: list[Planned] = []
    for one in sorted(planned, key=lambda each: each.at_s):
        held = any(
            _place(other) == _place(one) and one.at_s < other.at_s + other.length_s + 0.5
            for other in kept
        )
        if not held:
            kept.append(one)
    return tuple(kept)


def _place(one: Planned) -> str:
    code, target = one.fault.code, one.target
    if code in ("F16", "F17", "F18"):
        return "proxy"
    if code in ("F12", "F30"):
        return code
    return target or one.fault.kind
