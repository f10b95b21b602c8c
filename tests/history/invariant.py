"""The words of the checker: invariants, violations, and the limits that a run was held to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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
    spans all partitions is split among its owners). `recovery_ms`: how long replaying and working
    off may take. `key_lifetime_ms`: by tool id. `memory_mb_max`: of one process, at its peak.
    `arrival_slack_ms`: by how much requests may come closer on their way to the provider.
    `asked_again`: True where something was forced, forgotten or aged, so that a completed question
    may be bought again. `has_faults`: False for a calm run.
    """

    windows: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)
    concurrency: Mapping[str, int] = field(default_factory=dict)
    lease_ms: int = 20_000
    session_ms: int = 10_000
    recovery_ms: int = 30_000
    key_lifetime_ms: Mapping[str, int] = field(default_factory=dict)
    memory_mb_max: float = 400
    arrival_slack_ms: int = 100
    asked_again: bool = False
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
    """A promise in plain words.

    What it can't be checked without: `needs`, parts of `Finals`; `speaks_of`, kinds of events, each
    at least once; `bounded_by`, parts of `Limits` that are not empty.
    """

    code: str
    statement: str
    check: Check
    needs: frozenset[str] = frozenset()
    speaks_of: frozenset[str] = frozenset()
    bounded_by: frozenset[str] = frozenset()


def invariant(
    code: str,
    statement: str,
    *,
    needs: Collection[str] = (),
    speaks_of: Collection[str] = (),
    bounded_by: Collection[str] = (),
) -> Callable[[Check], Invariant]:
    """Make an invariant of the function that checks it."""
    words = " ".join(statement.split())
    without = frozenset(needs), frozenset(speaks_of), frozenset(bounded_by)
    return lambda found: Invariant(code, words, found, *without)
