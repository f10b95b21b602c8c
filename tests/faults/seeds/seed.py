"""One seed from its first row to its verdict: feed, trouble, heal, wait, check, build again."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.seeds.finals import collect, dump, read_sheet, until_committed
from tests.faults.seeds.schedule import Planned, Schedule
from tests.faults.seeds.shape import (
    BLIND_CONCURRENCY,
    FREE_CONCURRENCY,
    PACED_CALLS,
    PACED_CONCURRENCY,
    Shape,
)
from tests.faults.seeds.world import LEASE_S, SESSION_S, World
from tests.history.__main__ import save_limits
from tests.history.checker import check
from tests.history.events import History
from tests.history.finals import Finals, Rebuilt, SheetRow
from tests.history.hits import proves_nothing
from tests.history.invariant import Limits, Window
from tests.history.report import Report
from tests.kit.mill import RunningRun
from tests.kit.until import until_sync

ROWS_OPEN = 16
ENDS_WITHIN_S = 150
"""Hangs end here; how soon everything ends is INV26's to judge."""

MEMORY_MB_MAX = 400
FAULT_OF_THE_CODE = 1
"""Exit code of a worker with a traceback in its log."""

LIMITS: dict[str, Any] = {
    "windows": {"paced": (Window(PACED_CALLS, 1_000),)},
    "concurrency": {
        "paced": PACED_CONCURRENCY,
        "free": FREE_CONCURRENCY,
        "blind": BLIND_CONCURRENCY,
    },
    "key_lifetime_ms": dict.fromkeys(("free.first", "paced.second"), 86_400_000),
    "lease_ms": round(LEASE_S * 1000),
    "session_ms": round(SESSION_S * 1000),
    "memory_mb_max": MEMORY_MB_MAX,
}


@dataclass
class Outcome:
    """What came of a seed. `faults`: how many of each code were begun. `hits`: how many kills,
    freezes, cuts and broker losses that came to. `others`: what is wrong beside broken promises."""

    schedule: Schedule
    report: Report
    faults: dict[str, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    rows: int = 0
    calls: int = 0
    took_s: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Return what is wrong with it, in words; nothing where it passed."""
        return [*([] if self.report.ok else [str(self.report)]), *self.others]


def run_seed(
    schedule: Schedule,
    home: Path,
    twin: list[SheetRow] | None,
    *,
    rebuild: bool = False,
    planted: str | None = None,
) -> Outcome:
    """Run one seed below `home`, which is removed again where nothing was found."""
    began_s = time.monotonic()
    with World(home, f"seed {schedule.seed}", planted=planted) as world:
        world.start_workers()
        run = begin(world, schedule.shape, "seed")
        begun = _trouble(world, schedule, run)
        world.note("calm")
        report, others = _ended(world, run)
        with contextlib.suppress(TimeoutError):  # what is not committed then is INV20's to tell
            until_committed(world)
        world.keep()
        others += _stopped(world)
        sheet = read_sheet(world)
        finals = collect(world, schedule.shape, report, sheet)
        finals.twin = twin
        if rebuild and report is not None:
            try:
                finals.rebuilt = _rebuilt(world, schedule.shape, sheet)
            except (TimeoutError, AssertionError) as error:
                others.append(f"sheet and receipts could not be built again: {error}")
    history = History.read(world.history)
    limits = Limits(**LIMITS, has_faults=bool(schedule.faults))
    save_limits(limits, world.history)
    checked = check(history, finals, limits=limits)
    seen = history.before("rebuilding")
    others += _faults_of_the_code(seen)
    others += proves_nothing(seen, finals, has_faults=bool(schedule.faults))
    outcome = Outcome(
        schedule,
        checked,
        begun,
        _hits(seen),
        others,
        rows=len(schedule.shape.lines),
        calls=world.provider.calls,
        took_s=time.monotonic() - began_s,
    )
    _keep_or_remove(outcome, finals, home)
    return outcome


def _ended(world: World, run: RunningRun) -> tuple[dict[str, Any] | None, list[str]]:
    """Wait for the run's end. Returns: its report, None without one; why there is none."""
    try:
        return _until_ended(world, run), []
    except TimeoutError:
        return None, [f"the run had not ended {ENDS_WITHIN_S} s after the last fault"]
    except AssertionError as error:
        return None, [f"the run ended without a report: {error}"]


def _stopped(world: World) -> list[str]:
    """Stop the workers. Returns: which of them would not, in words."""
    try:
        world.stop_workers()
    except subprocess.TimeoutExpired as error:
        return [f"a worker did not stop as planned: {error}"]
    return []


def _hits(history: History) -> dict[str, int]:
    losses = [event for event in history.kind("fault") if event["code"] == "F12"]
    return {
        "kills": len(history.kind("killed")),
        "freezes": len(history.kind("frozen")),
        "cuts": len(history.kind("cut")),
        "broker losses": len(losses),
    }


def _faults_of_the_code(history: History) -> list[str]:
    return [
        f"{event['target']} ended by itself with exit code {event['code']}: see its log"
        for event in history.kind("ended")
        if event["code"] == FAULT_OF_THE_CODE
    ]


def calm_twin(shape: Shape, home: Path) -> list[SheetRow]:
    """Run a shape without faults, and return its sheet."""
    with World(home, f"twin {shape.number}", latency_s=0.01) as world:
        world.start_workers()
        report = _until_ended(world, begin(world, shape, "twin"))
        assert report["pending"] == 0, report
        world.stop_workers()
        sheet = read_sheet(world)
    shutil.rmtree(home, ignore_errors=True)
    return sheet


def begin(world: World, shape: Shape, run_id: str) -> RunningRun:
    """Begin a run of a shape's rows."""
    path = shape.write(world.home / f"{run_id}-in.csv")
    return world.mill.start_run(path, run_id, "--concurrency", str(ROWS_OPEN))


def _trouble(world: World, schedule: Schedule, run: RunningRun) -> dict[str, int]:
    """Begin and heal each fault at its time; start again who has ended. Returns how many by code."""
    until_sync(lambda: world.provider.calls > 0, within_s=60)
    began_s = time.monotonic()
    waiting = list(schedule.faults)
    healing: list[tuple[float, Planned, Callable[[], None]]] = []
    begun: dict[str, int] = {}
    while waiting or healing:
        now_s = time.monotonic() - began_s
        for due in [one for one in healing if one[0] <= now_s]:
            healing.remove(due)
            due[2]()
            world.note("healed", **_named(due[1]))
        if waiting and waiting[0].at_s <= now_s:
            one = waiting.pop(0)
            world.note("fault", **_named(one))
            begun[one.fault.code] = begun.get(one.fault.code, 0) + 1
            healing.append((now_s + one.length_s, one, one.fault.begin(world, one.target)))
        world.keep()
        time.sleep(0.05)  # the schedule's own clock
    return begun


def _named(one: Planned) -> dict[str, str]:
    """Return what a fault's events say of it: its end must be known by the same words."""
    return {"kind": one.fault.kind, "target": one.target or "all", "code": one.fault.code}


def _until_ended(world: World, run: RunningRun) -> dict[str, Any]:
    """Keep all workers alive until the run has ended. Raises: TimeoutError."""

    def ended() -> bool:
        world.keep()
        return run.process.poll() is not None

    until_sync(ended, within_s=ENDS_WITHIN_S, every_s=0.1)
    _, report = run.done(within_s=10)
    return report


def _rebuilt(world: World, shape: Shape, before: list[SheetRow]) -> Rebuilt:
    """Delete tables and sheet; let both be built again from the topics, and ask everything anew."""
    world.note("rebuilding")
    shutil.rmtree(world.home / "stores")
    for path in world.home.glob("sheet.sqlite*"):
        path.unlink()
    world.start_workers()
    until_sync(lambda: (world.home / "sheet.sqlite").exists(), within_s=60)
    until_sync(lambda: len(_sheet_or_nothing(world)) == len(before), within_s=60, every_s=0.5)
    rebuilt = read_sheet(world)
    _until_ended(world, begin(world, shape, "again"))
    world.stop_workers()
    again = {row.row: row.cells for row in read_sheet(world) if row.status == "completed"}
    known = {row.row: row.cells for row in before if row.status == "completed"}
    return Rebuilt(
        calls=_bought_again(History.read(world.history)),
        receipts_equal=all(again.get(row) == cells for row, cells in known.items()),
        sheet_equal=rebuilt == before,
    )


def _bought_again(history: History) -> int:
    """Count the calls of the rebuilt world for what was completed before."""
    completed: set[str] = set()
    calls, rebuilding = 0, False
    for event in history.kind("kept", "rebuilding", "sent"):
        rebuilding = rebuilding or event["event"] == "rebuilding"
        if event["event"] == "sent":
            calls += rebuilding and event["receipt"] in completed
        elif event["event"] == "kept" and event["state"] == "completed":
            completed.add(event["receipt"])
    return calls


def _sheet_or_nothing(world: World) -> list[SheetRow]:
    try:
        return read_sheet(world)
    except Exception:  # noqa: BLE001 - it is being made
        return []


def _keep_or_remove(outcome: Outcome, finals: Finals, home: Path) -> None:
    if not outcome.problems:
        shutil.rmtree(home, ignore_errors=True)
        return
    dump(finals, home / "topics")
    (home / "schedule.txt").write_text(f"{outcome.schedule}\n")
    (home / "report.json").write_text(json.dumps(finals.report, indent=1))
