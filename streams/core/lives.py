"""Who may be a run's main: pure decisions about lives.

A run has one main at a time. A main is a *life*: number n and a random claim. A claimant writes life
n+1 and reads back; the first record of that number in the log wins, the others give up. A main
renews every 3 s on its own clock; whoever wants to follow a silent one watches it for 20 s on *his*
clock: two machines' clocks are never compared. On one machine the lock file tells at once, since
only a live process holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

RENEW_MS = 3_000
"""A main writes its record again this often."""

FOLLOW_MS = 20_000
"""A main that was silent this long on the claimant's clock may be followed."""

OVER = ("paused", "stopped", "finished")
"""States in which a run has no main."""


@dataclass(frozen=True, slots=True)
class Main:
    """What the log says of a run's newest main. `instance`: id of the state directory it used."""

    life: int
    claim: str
    state: str
    instance: str
    pid: int
    renewals: int

    @property
    def over(self) -> bool:
        """True where this main has left the run by its own word."""
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class Claim:
    """Write a claim for this life."""

    life: int


@dataclass(frozen=True, slots=True)
class Report:
    """All rows have ended: nothing is fed again, the counts are told again."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Look again within this time: the main may be dead."""

    for_ms: int


@dataclass(frozen=True, slots=True)
class Driven:
    """Another main is alive."""

    main: Main


Step = Claim | Report | Watch | Driven


def next_step(
    seen_first: Main | None,
    held: Main | None,
    *,
    instance: str,
    watched_ms: int,
    again: bool = False,
) -> Step:
    """Say what a claimant does now. It holds the run's lock in its own state directory.

    Args: `seen_first`: the main when the claimant began to watch; `held`: the main that holds now,
    both None for a run that nobody knows; `instance`: the claimant's own; `watched_ms` >= 0: how
    long it has watched, on its monotonic clock; `again`: some rows of a finished run are to run once
    more.
    """
    if held is None:
        return Claim(1)
    if held.state == "finished" and not again:
        return Report()
    if held.over:
        return Claim(held.life + 1)
    if held.instance == instance:
        # We hold the lock that the former main of this state directory held to its death.
        return Claim(held.life + 1)
    if seen_first is not None and held != seen_first:
        return Driven(held)
    if watched_ms >= FOLLOW_MS:
        return Claim(held.life + 1)
    return Watch(FOLLOW_MS - watched_ms)


def won(held: Main | None, *, life: int, claim: str) -> bool:
    """Say whether our claim of `life` stands, once the log was read past it."""
    return held is not None and (held.life, held.claim) == (life, claim)
