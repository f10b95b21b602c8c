"""Two claimants of one run, in every interleaving: exactly one has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rowmill.streams.core.lives import (
    FOLLOW_MS,
    Claim,
    Driven,
    Main,
    Report,
    Watch,
    next_step,
    won,
)
from rowmill.topics.codec import decode, encode
from rowmill.topics.contracts import PlayReference, RunOptions, RunRecord
from rowmill.topics.views import RunsView


@dataclass
class Log:
    """One partition: records in order, and what a reader of all of them holds."""

    records: list[bytes] = field(default_factory=list)

    def append(self, record: RunRecord) -> None:
        self.records.append(encode(record))

    def held(self) -> RunRecord | None:
        view = RunsView()
        for offset, value in enumerate(self.records):
            view.apply("r", value, offset)
        return view.get("r")


def record(life: int, claim: str, state: Any, instance: str, renewals: int = 0) -> RunRecord:
    return RunRecord(
        run="r", life=life, claim=claim, instance=instance, pid=1, renewals=renewals,
        state=state, started_at_ms=0, updated_at_ms=0, dataset="d",
        play=PlayReference(name="p", digest="x"), options=RunOptions(),
    )  # fmt: skip


def main_of(found: RunRecord | None) -> Main | None:
    if found is None:
        return None
    return Main(found.life, found.claim, found.state, found.instance, found.pid, found.renewals)


@dataclass
class Claimant:
    """A claimant whose every look and every write is one step that others may come between."""

    name: str
    log: Log
    outcome: str = "undecided"
    life: int = 0

    def steps(self) -> Iterator[None]:
        seen_first = main_of(self.log.held())
        watched_ms = 0
        while True:
            held = main_of(self.log.held())
            step = next_step(seen_first, held, instance=self.name, watched_ms=watched_ms)
            yield
            if isinstance(step, Claim):
                self.log.append(record(step.life, self.name, "claiming", self.name))
                yield
                has_it = won(main_of(self.log.held()), life=step.life, claim=self.name)
                self.outcome, self.life = ("won" if has_it else "lost"), step.life
                if has_it:
                    self.log.append(record(step.life, self.name, "open", self.name, 1))
                return
            if isinstance(step, Driven | Report):
                self.outcome = "lost"
                return
            assert isinstance(step, Watch)
            watched_ms = FOLLOW_MS  # nobody renews: the whole watch passes in silence


FORMER = st.sampled_from([None, "paused", "stopped", "open", "claiming"])


@given(former=FORMER, order=st.lists(st.integers(0, 2), min_size=30, max_size=60))
def test_of_claimants_at_once_exactly_one_has_the_run(former: str | None, order: list[int]) -> None:
    log = Log()
    if former is not None:
        log.append(record(1, "dead", former, "elsewhere"))
    claimants = [Claimant(name, log) for name in ("a", "b", "c")]
    running = [claimant.steps() for claimant in claimants]
    for turn in [*order, *(number for _ in range(10) for number in range(3))]:
        next(running[turn], None)
    held = log.held()
    assert held is not None
    # The watch passes in no time here, so a slow winner may be followed: lives may rise. But each
    # life is one claimant's, and the highest is held by one who knows that it has it.
    winners = {claimant.life: claimant.name for claimant in claimants if claimant.outcome == "won"}
    assert len(winners) == sum(claimant.outcome == "won" for claimant in claimants)
    assert winners.get(held.life) == held.claim
    assert all(_first_claims(log)[life] == name for life, name in winners.items())


def _first_claims(log: Log) -> dict[int, str]:
    """The claim of each life's first record in the log."""
    first: dict[int, str] = {}
    for value in log.records:
        found = decode(RunRecord, value)
        first.setdefault(found.life, found.claim)
    return first


@given(renewals=st.integers(1, 5))
def test_a_main_that_renews_is_never_followed(renewals: int) -> None:
    first = Main(3, "c", "open", "elsewhere", 7, 0)
    seen = Main(3, "c", "open", "elsewhere", 7, renewals)
    assert next_step(first, seen, instance="here", watched_ms=10 * FOLLOW_MS) == Driven(seen)


def test_a_silent_main_elsewhere_is_watched_for_twenty_seconds_then_followed() -> None:
    silent = Main(3, "c", "open", "elsewhere", 7, 4)
    assert next_step(silent, silent, instance="here", watched_ms=0) == Watch(FOLLOW_MS)
    assert next_step(silent, silent, instance="here", watched_ms=FOLLOW_MS - 1) == Watch(1)
    assert next_step(silent, silent, instance="here", watched_ms=FOLLOW_MS) == Claim(4)


def test_a_main_of_our_own_directory_is_dead_once_we_hold_its_lock() -> None:
    dead = Main(1, "c", "open", "here", 7, 4)
    assert next_step(dead, dead, instance="here", watched_ms=0) == Claim(2)


def test_a_finished_run_is_told_about_and_others_that_ended_are_resumed() -> None:
    def ended(state: str) -> Main:
        return Main(2, "c", state, "elsewhere", 7, 4)

    finished, paused, stopped = ended("finished"), ended("paused"), ended("stopped")
    assert next_step(finished, finished, instance="here", watched_ms=0) == Report()
    again = next_step(finished, finished, instance="here", watched_ms=0, again=True)
    assert again == Claim(3), "some of its rows are to run once more"
    assert next_step(paused, paused, instance="here", watched_ms=0) == Claim(3)
    assert next_step(stopped, stopped, instance="here", watched_ms=0) == Claim(3)
    assert next_step(None, None, instance="here", watched_ms=0) == Claim(1)


def test_a_main_that_paused_while_it_was_watched_is_resumed_at_once() -> None:
    watched = Main(2, "c", "open", "elsewhere", 7, 4)
    paused = Main(2, "c", "paused", "elsewhere", 7, 4)
    assert next_step(watched, paused, instance="here", watched_ms=5_000) == Claim(3)
