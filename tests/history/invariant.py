"""The words of the checker: invariants, violations, and the limits that a run was held to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.history.events import Event, History
from tests.history.finals import Finals


@dataclass(frozen=True, slots=True)
class Window:
    """A rate limit: at most `calls` sends within any `window_ms`."""

    calls: int
    window_ms: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run was held to. Durations in ms, sizes in MB (10^6 bytes).

    `windows`, `concurrency`: by lane, of one owner (see `streams/dispatch/lanes.py`: a lane that
    spans all partitions is split among its owners). `key_lifetime_ms`: by tool id.
    `has_faults`: False for a calm run, in which nothing may be sent twice.
    """

    windows: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)
    concurrency: Mapping[str, int] = field(default_factory=dict)
    lease_ms: int = 20_000
    session_ms: int = 10_000
    recovery_ms: int = 30_000
    key_lifetime_ms: Mapping[str, int] = field(default_factory=dict)
    memory_mb_max: float | None = None
    has_faults: bool = True


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. `subject`: which row, key, partition; `events`: the proof."""

    code: str
    subject: str
    why: str
    events: tuple[Event, ...] = ()


Check = Callable[[History, Finals, Limits], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A promise in plain words. `needs`: the parts of `Finals` without which it can't be checked."""

    code: str
    statement: str
    check: Check
    needs: frozenset[str] = frozenset()
