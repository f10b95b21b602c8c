"""Bounds: memory, time to recover, and secrets that are nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.events import Event, History
from tests.history.finals import Finals
from tests.history.invariant import Limits, Violation, invariant
from tests.history.lives import EVER, MS, Lives

GRACE_MS = 30_000
"""What is given beyond lease, session and recovery (INV26)."""


@invariant(
    "INV25",
    """No process takes more memory (resident, at its peak) than it is allowed to.""",
    needs={"memory_mb"},
)
def memory(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV25."""
    for by, peak_mb in sorted((finals.memory_mb or {}).items()):
        if peak_mb > limits.memory_mb_max:
            why = f"took {peak_mb:,.0f} MB; allowed are {limits.memory_mb_max:,.0f} MB"
            yield Violation("INV25", f"process {by}", why)


@invariant(
    "INV26",
    """Once the last fault is over, every row ends within the time of a lease, a session, a recovery
    and 30 s: nothing hangs, nothing is lost on the way.""",
    speaks_of={"calm", "fed"},
)
def ends_soon(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV26."""
    calm = history.kind("calm")[-1]
    allowed_ms = limits.lease_ms + limits.session_ms + limits.recovery_ms + GRACE_MS
    ended: dict[tuple[str, str], Event] = {}
    for event in history.kind("entered"):
        ended.setdefault((event["run"], event["row"]), event)
    lives = history.view(Lives)
    for event in history.kind("published"):
        if lives.death(event["by"], event["at"], EVER):  # it may not have come to say so
            ended.setdefault((event["run"], event["row"]), event)
    fed: dict[tuple[str, str], Event] = {}
    for event in history.kind("fed"):
        fed.setdefault((event["run"], event["row"]), event)
    for place, event in fed.items():
        begin = calm if calm["at"] > event["at"] else event
        end = ended.get(place)
        subject = f"row {place[1]} of run {place[0]}"
        if end is None:
            yield Violation("INV26", subject, "it never ended", (event, calm))
        elif (took_ms := (end["at"] - begin["at"]) / MS) > allowed_ms:
            why = f"it ended {took_ms:,.0f} ms after the last fault; allowed are {allowed_ms:,} ms"
            yield Violation("INV26", subject, why, (event, calm, end))


@invariant(
    "INV27",
    """A secret that was planted is nowhere: in no topic, store, sheet, log, metric or page.""",
    needs={"canaries"},
)
def no_secret(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV27."""
    for place in finals.canaries or ():
        yield Violation("INV27", place, "the planted secret was found there")
