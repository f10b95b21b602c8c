"""The command line of the seeds: one to look at, or many in a row with a summary."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.seeds.planted import BUGS
from tests.faults.seeds.schedule import schedule_of
from tests.faults.seeds.seed import Outcome, run_seed
from tests.faults.seeds.twins import twin_of

TEETH_SEEDS_MAX = 20
NEED_REBUILD = ("forget_receipts",)

REBUILD_EVERY = 3
"""Every third seed builds tables and sheet again from the topics (INV23)."""


@dataclass
class Result:
    """What is told of a seed across processes."""

    seed: int
    problems: list[str]
    codes: set[str] = field(default_factory=set)
    faults: dict[str, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    calls: int = 0
    took_s: float = 0.0


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments say. Returns: 0 where every seed passed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its schedule and report")
    parser.add_argument("--seeds", type=int, default=12, help="how many seeds in a row")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=3, help="how many at a time")
    parser.add_argument("--keep", type=Path, help="where folders of violations go")
    parser.add_argument("--planted", help="a bug of tests/faults/seeds/planted.py, or all of them")
    wanted = parser.parse_args(arguments)
    folder = wanted.keep or Path(tempfile.mkdtemp(prefix="rowmill-faults-"))
    if wanted.planted is not None and wanted.seed is None:
        bugs = list(BUGS) if wanted.planted == "all" else [wanted.planted]
        return _show_teeth(bugs, wanted.jobs, folder)
    if wanted.seed is not None:
        print(schedule_of(wanted.seed))
        seeds, jobs = [wanted.seed], 1
    else:
        seeds, jobs = list(range(wanted.first, wanted.first + wanted.seeds)), wanted.jobs
    began_s = time.monotonic()
    results = _run_all(seeds, jobs, folder, wanted.planted)
    print(_summary(results, time.monotonic() - began_s))
    return 1 if any(result.problems for result in results) else 0


def _run_all(seeds: list[int], jobs: int, folder: Path, planted: str | None) -> list[Result]:
    results = []
    with ProcessPoolExecutor(jobs) as pool:
        running = [pool.submit(_run, seed, folder, planted) for seed in seeds]
        for done in as_completed(running):
            results.append(result := done.result())
            print(f"seed {result.seed}: {_verdict(result)}", flush=True)
            for problem in result.problems:
                print(problem, flush=True)
                home = folder / f"seed-{result.seed}"
                print(f"kept: {home}\nlook: python -m tests.history {home / 'history'}", flush=True)
    return results


def _show_teeth(bugs: list[str], jobs: int, folder: Path) -> int:
    """Run seeds with each planted bug until the checker names what it breaks."""
    missed = []
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(_find, bug, folder): bug for bug in bugs}
        for done in as_completed(running):
            bug, (seeds, codes) = running[done], done.result()
            found = codes & set(BUGS[bug].breaks)
            if not found:
                missed.append(bug)
            verdict = f"found as {', '.join(sorted(found))}" if found else "NOT FOUND"
            others = ", ".join(sorted(codes - found)) or "none"
            print(f"{bug}: {verdict} after {seeds} seeds; others named: {others}", flush=True)
    print(f"{len(bugs) - len(missed)} of {len(bugs)} planted bugs found")
    return 1 if missed else 0


def _find(bug: str, folder: Path) -> tuple[int, set[str]]:
    """Return after how many seeds a planted bug was found, and which codes that seed named."""
    codes: set[str] = set()
    for seed in range(TEETH_SEEDS_MAX):
        result = _run(seed, folder, bug, rebuild=bug in NEED_REBUILD)
        shutil.rmtree(folder / f"{bug}-{seed}", ignore_errors=True)
        codes = result.codes
        if codes & set(BUGS[bug].breaks):
            return seed + 1, codes
        if not codes:
            print(f"{bug}, seed {seed}: {result.problems or 'nothing found'}", flush=True)
    return TEETH_SEEDS_MAX, codes


def _run(seed: int, folder: Path, planted: str | None, *, rebuild: bool | None = None) -> Result:
    schedule = schedule_of(seed)
    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115 - a mill's logs are kept
    home = folder / f"{planted or 'seed'}-{seed}"
    try:
        twin = twin_of(schedule.shape, folder)
        again = seed % REBUILD_EVERY == 0 if rebuild is None else rebuild
        outcome = run_seed(schedule, home, twin, rebuild=again, planted=planted)
    except Exception as error:  # noqa: BLE001 - a seed that breaks is a result, the others go on
        return Result(seed, [f"it broke: {error!r}"])
    finally:
        sys.stdout = stdout
    return _result(outcome)


def _result(outcome: Outcome) -> Result:
    return Result(
        outcome.schedule.seed,
        outcome.problems,
        {violation.code for violation in outcome.report.violations},
        outcome.faults,
        outcome.hits,
        outcome.rows,
        outcome.calls,
        outcome.took_s,
    )


def _verdict(result: Result) -> str:
    if result.problems:
        return f"FAILED after {result.took_s:.0f} s"
    faults = sum(result.faults.values())
    return f"passed, {faults} faults, {result.calls} calls, {result.took_s:.0f} s"


def _summary(results: list[Result], took_s: float) -> str:
    faults: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
        hits.update(result.hits)
    failed = sorted(result.seed for result in results if result.problems)
    kinds = ", ".join(f"{code} {count}" for code, count in sorted(faults.items(), key=_number))
    what = ", ".join(f"{count} {name}" for name, count in hits.items())
    return (
        f"{len(results)} seeds in {took_s:.0f} s: {sum(faults.values())} faults ({kinds}): {what}; "
        f"{sum(result.rows for result in results):,} rows, "
        f"{sum(result.calls for result in results):,} calls; "
        f"{f'failed: {failed}' if failed else 'no violation'}"
    )


def _number(item: tuple[str, int]) -> int:
    return int(item[0][1:])
