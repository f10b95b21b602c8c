"""The command line of the simulation: one seed with its trace, or many with a summary."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import structlog

from tests.history.events import Event
from tests.simulation.bugs import BUGS
from tests.simulation.seeds import Outcome, simulate
from tests.simulation.teeth import SEEDS_MAX, Found, hunt

BATCH = 50
"""Seeds of one task of a process: starting one costs more than a seed."""


@dataclass
class Batch:
    """What a batch of seeds came to. `failed`: seed and what is wrong with it."""

    seeds: int
    events: int
    simulated_ms: float
    failed: list[tuple[int, list[str]]]


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments say. Returns: 0 where every seed passed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its trace")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many seeds")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--teeth", action="store_true", help="which planted bugs are found")
    parser.add_argument("--about", default="", help="of the trace: events that name this only")
    wanted = parser.parse_args(arguments)
    if wanted.seed is not None:
        return show(wanted.seed, wanted.about)
    if wanted.teeth:
        return show_teeth(wanted.jobs)
    return run_many(wanted.first, wanted.seeds, wanted.jobs)


def quieten() -> None:
    """Let the role log nothing: thousands of seeds would. What is there now is never garbage."""
    gc.collect()
    gc.freeze()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # Once a world is over, what its processes were at is collected, with nobody to run it.
    sys.unraisablehook = lambda _: None
    warnings.simplefilter("ignore", RuntimeWarning)


def show(seed: int, about: str) -> int:
    """Print a seed's trace, and what is wrong with it."""
    quieten()
    outcome = simulate(seed)
    for event in outcome.history.events:
        if not about or any(about in str(value) for value in event.values()):
            print(line_of(event))
    print(f"seed {seed}: {len(outcome.history.events)} events, {outcome.calls} calls")
    print("\n".join(outcome.problems) or "no violation")
    return 1 if outcome.problems else 0


def line_of(event: Event) -> str:
    """Return an event as a line of a trace."""
    told = {key: value for key, value in event.items() if key not in ("at", "by", "event")}
    fields = " ".join(f"{key}={value}" for key, value in told.items())
    return f"{event['at'] / 1e9:10.3f} s  {event['by']:14} {event['event']:10} {fields}"


def show_teeth(jobs: int) -> int:
    """Hunt every planted bug, and print where each was found."""
    missed = 0
    with ProcessPoolExecutor(jobs, initializer=quieten) as pool:
        for bug, found in zip(BUGS, pool.map(_hunted, range(len(BUGS))), strict=True):
            missed += found is None
            where = (
                f"NOT FOUND within {SEEDS_MAX:,} seeds, {' or '.join(bug.breaks)} expected"
                if found is None
                else f"{found.code} after {found.seeds} seeds"
            )
            print(f"{bug.name}: {where}", flush=True)
    print(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs found")
    return 1 if missed else 0


def _hunted(number: int) -> Found | None:
    return hunt(BUGS[number], range(SEEDS_MAX))


def run_many(first: int, seeds: int, jobs: int) -> int:
    """Run seeds in processes, and print a summary and what failed."""
    began_s = time.monotonic()
    done = Batch(0, 0, 0.0, [])
    with ProcessPoolExecutor(jobs, initializer=quieten) as pool:
        for batch in pool.map(run_batch, _batches(first, seeds)):
            done.seeds += batch.seeds
            done.events += batch.events
            done.simulated_ms += batch.simulated_ms
            for seed, problems in batch.failed:
                print(f"seed {seed}: FAILED (python -m tests.simulation --seed {seed})")
                print("\n".join(problems), flush=True)
            done.failed += batch.failed
    took_s = time.monotonic() - began_s
    print(
        f"{done.seeds:,} seeds in {took_s:.0f} s ({done.seeds * 60 / took_s:,.0f} a minute): "
        f"{done.events:,} events, {done.simulated_ms / 3_600_000:,.0f} simulated hours; "
        + (f"failed: {[seed for seed, _ in done.failed]}" if done.failed else "no violation")
    )
    return 1 if done.failed else 0


def run_batch(seeds: range) -> Batch:
    """Run a batch of seeds in this process."""
    batch = Batch(0, 0, 0.0, [])
    for seed in seeds:
        outcome: Outcome = simulate(seed)
        batch.seeds += 1
        batch.events += outcome.events
        batch.simulated_ms += outcome.simulated_ms
        if outcome.problems:
            batch.failed.append((seed, outcome.problems))
    return batch


def _batches(first: int, seeds: int) -> Iterator[range]:
    for begin in range(first, first + seeds, BATCH):
        yield range(begin, min(begin + BATCH, first + seeds))
