"""One measured run: start everything, say go, watch the sheet, kill if asked, add up."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.measure import Meter, Sampling
from bench.provider import BenchProvider, free_port
from bench.result import PROVIDER, Kill, Measured
from bench.sheet import SheetWatch
from bench.submitter import Submitter
from bench.work import DATASET, PLAY, RUN, symbols
from rowmill.errors import RowmillError
from rowmill.ops.supervisor import control, records
from rowmill.ops.supervisor.layout import ROLES, Layout
from rowmill.settings import Settings

LOOK_EVERY_S = 0.1
SETTLE_S = 1.5
"""Wait before the provider's counts are read: a call repeated late would still be counted."""

KILL_REACHED_S = 10.0


@dataclass(slots=True)
class Mill:
    """A whole Rowmill of this measurement's own, up and idle."""

    settings: Settings
    supervisor_pid: int
    broker_pid: int
    provider: BenchProvider
    submitter: Submitter
    sheet: SheetWatch

    def kill_workers(self) -> None:
        """End all workers with SIGKILL, and wait until the supervisor has seen each die."""
        layout = Layout.of(self.settings)
        victims = [
            record.pid
            for role in ROLES
            if (record := records.read(layout.worker_record(role, 0), records.WorkerRecord))
        ]
        if len(victims) != len(ROLES):
            raise RuntimeError(f"{len(victims)} workers of {len(ROLES)} were up at the kill")
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + KILL_REACHED_S
        while any(_is_there(pid) for pid in victims):
            if time.monotonic() > deadline:
                raise RuntimeError(f"workers {victims} outlive SIGKILL")
            time.sleep(0.005)


def _is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in (Path("/proc") / str(pid) / "status").read_text()
    except OSError:
        return False


@contextmanager
def started(given: argparse.Namespace, home: Path) -> Iterator[Mill]:
    """Have everything up and idle inside the block, and nothing of it afterwards."""
    settings = Settings(home=home, kafka="", kafka_port=free_port(), sheet="", drain_s=10)
    with ExitStack() as stack:
        provider = BenchProvider.start(given.delay_ms, home / "provider.log")
        stack.callback(provider.stop)
        stack.callback(control.down, settings)
        supervisor = control.up(settings, [PLAY.parent], note=_note)
        submitter = Submitter.start(
            settings,
            rows=given.rows,
            concurrency=given.concurrency,
            base_url=provider.url,
            log=home / "submit.log",
        )
        stack.callback(submitter.stop)
        sheet = SheetWatch(settings, DATASET, RUN)
        stack.callback(sheet.close)
        assert supervisor.broker_pid is not None
        yield Mill(settings, supervisor.pid, supervisor.broker_pid, provider, submitter, sheet)


def worker_role(pid: int) -> str | None:
    """Return the role of a worker by its command line, None for another process."""
    try:
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().split("\0")
    except OSError:
        return None
    roles = [after for word, after in pairwise(words) if word == "worker"]
    return roles[0] if roles and roles[0] in ROLES else None


def measure(given: argparse.Namespace, mill: Mill) -> Measured:
    """Run the work over the idle mill and add up what it took."""
    roots = {
        mill.supervisor_pid: "supervisor",
        mill.broker_pid: "broker",
        mill.submitter.pid: "submit",
        mill.provider.pid: PROVIDER,
    }
    meter = Meter(roots, worker_role, unweighed=frozenset({PROVIDER}))
    load1_before = os.getloadavg()[0]
    sampling = Sampling(meter)
    wall_s, rows_seen, kill = _watch(given, mill, sampling)
    cpu_s, other_cpu_s = sampling.end()
    report = mill.submitter.report() if rows_seen >= given.rows else {}
    time.sleep(SETTLE_S)
    return Measured(
        rows=given.rows,
        rows_seen=rows_seen,
        rows_lost=mill.sheet.lost(symbols(given.rows), mill.provider.check),
        wall_s=wall_s,
        cpu_s=cpu_s,
        other_cpu_s=other_cpu_s,
        peak_kb=meter.peak_kb,
        provider=mill.provider.counts(),
        load1_before=load1_before,
        concurrency=given.concurrency,
        workers=len(ROLES),
        kill_asked=given.kill_at > 0,
        kill=kill,
        more={"report_wall_s": report["wall_s"]} if report else {},
    )


def _watch(
    given: argparse.Namespace, mill: Mill, sampling: Sampling
) -> tuple[float, int, Kill | None]:
    """Say go and look at the sheet until the last row. Returns wall seconds, rows seen, the kill."""
    killed_at: float | None = None
    kill: Kill | None = None
    began = time.monotonic()
    mill.submitter.go()
    while True:
        rows, now = mill.sheet.rows(), time.monotonic()
        if kill and killed_at and kill.progress_s is None and rows > kill.rows:
            kill = Kill(kill.rows, round(now - killed_at, 2))
        if rows >= given.rows or now - began > given.timeout:
            return now - began, rows, kill
        if given.kill_at and kill is None and rows >= given.rows * given.kill_at:
            sampling.now()
            mill.provider.mark()
            mill.kill_workers()
            killed_at = time.monotonic()
            kill = Kill(mill.sheet.rows(), None)
        time.sleep(LOOK_EVERY_S)


def arguments(argv: list[str]) -> argparse.Namespace:
    """Return the arguments, checked."""
    parser = argparse.ArgumentParser(
        prog="bench/two_calls.py", description="Two dependent calls a row, measured end to end."
    )
    parser.add_argument("--rows", type=int, default=10_000, help="input rows, at least 1")
    parser.add_argument("--concurrency", type=int, default=200, help="rows in flight in all")
    parser.add_argument("--delay-ms", type=int, default=50, help="before the provider answers")
    parser.add_argument(
        "--kill-at", type=float, default=0.0, help="kill -9 the workers at this share of the rows"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for all rows")
    parser.add_argument(
        "--keep", action="store_true", help="keep the state directory with its logs"
    )
    given = parser.parse_args(argv)
    if given.rows < 1 or given.concurrency < 1 or not 0 <= given.kill_at < 1:
        parser.error("--rows and --concurrency are at least 1, --kill-at is 0 to below 1")
    return given


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Measure once and print the JSON line. Returns the exit code."""
    given = arguments(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is stopped
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="rowmill-bench-"))
        if given.keep:
            _note(f"state directory: {home}")
        else:
            stack.callback(_remove, home)
        try:
            with started(given, home) as mill:
                line = measure(given, mill).to_json()
        except RowmillError as error:
            _note(f"error: {error}")
            return error.exit_code
        print(json.dumps(line), flush=True)
    return 0


def _remove(home: Path) -> None:
    import shutil

    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
