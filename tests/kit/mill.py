"""A whole Rowmill of a test's own: broker, workers and provider as processes, driven by its CLI."""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit.broker import free_port
from tests.kit.provider import RunningProvider
from tests.kit.until import until_sync

EXAMPLE = Path(__file__).parents[2] / "examples" / "sp500"


@dataclass(slots=True)
class RunningRun:
    """A `rowmill run --json` under way."""

    process: subprocess.Popen[str]
    out: Path

    def done(self, within_s: float) -> tuple[int, dict[str, Any]]:
        """Return exit code and report. Raises: subprocess.TimeoutExpired."""
        stdout, stderr = self.process.communicate(timeout=within_s)
        assert stdout, f"no report; exit code {self.process.returncode}:\n{stderr}"
        report: dict[str, Any] = json.loads(stdout)
        return self.process.returncode, report

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the CSV that it wrote."""
        with self.out.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


class Mill:
    """Broker, workers and provider below one home. Use it as a context manager."""

    def __init__(self, home: Path, *, latency_ms: float = 50, **settings: object) -> None:
        """`settings`: of `rowmill.settings`, given to every process by environment."""
        self.home = home
        self.env = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith("ROWMILL_")
            },
            "ROWMILL_HOME": str(home),
            "ROWMILL_KAFKA_PORT": str(free_port()),
            **{f"ROWMILL_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.provider = RunningProvider.start(latency_ms=latency_ms)
        self._runs: list[RunningRun] = []

    def rowmill(self, *arguments: str, within_s: float = 120) -> str:
        """Run one command and return its stdout. Raises: AssertionError where it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "rowmill", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        assert done.returncode == 0, f"rowmill {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def up(self, **counts: int) -> None:
        """Start broker and workers; `counts`: processes of each role."""
        flags = [text for role, count in counts.items() for text in (f"--{role}", str(count))]
        self.rowmill("up", "--plays", str(EXAMPLE), *flags)

    def start_run(self, rows: Path, run_id: str, *flags: str) -> RunningRun:
        """Start the example play over `rows` (a CSV) and return at once."""
        out = self.home / f"{run_id}.csv"
        command = [
            *(sys.executable, "-m", "rowmill", "run", str(EXAMPLE / "play.py")),
            *("--input", str(rows), "--out", str(out), "--run-id", run_id, "--json"),
            *("--param", f"base_url={self.provider.url}", *flags),
        ]
        process = subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        run = RunningRun(process, out)
        self._runs.append(run)
        return run

    def status(self) -> dict[str, Any]:
        """Return `rowmill status --json`."""
        found: dict[str, Any] = json.loads(self.rowmill("status", "--json"))
        return found

    def pids(self, role: str) -> list[int]:
        """Return the pids of a role's workers, or of the broker ("kafka")."""
        found = self.status()
        if role == "kafka":
            return [found["kafka"]["pid"]]
        return [each["pid"] for each in found["workers"] if each["role"] == role and each["pid"]]

    def kill_9(self, role: str) -> None:
        """Kill every process of a role, or the broker; workers are started again by `up`."""
        for pid in self.pids(role):
            os.kill(pid, signal.SIGKILL)

    def restart_broker(self) -> None:
        """Kill the broker and start it again on its data."""
        self.kill_9("kafka")
        self.rowmill("kafka", "start")

    def sheet(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the sheet."""
        with sqlite3.connect(f"file:{self.home / 'sheet.sqlite'}?mode=ro", uri=True) as sheet:
            return sheet.execute(query).fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for run in self._runs:
            if run.process.poll() is None:
                run.process.kill()
                run.process.communicate()
        try:
            self.rowmill("down")
        finally:
            self.provider.stop()
            if kind is not None:
                self._show_logs()

    def _show_logs(self) -> None:
        for log in sorted((self.home / "logs").glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-30:]
            print(f"--- {log.name}", *tail, sep="\n")


def many_companies(path: Path, rows: int) -> Path:
    """Write a CSV of `rows` made-up companies with the example's columns; return its path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Symbol", "Security", "GICS Sector"])
        for number in range(rows):
            writer.writerow([f"S{number:06d}", f"Security, {number}", "Industrials"])
    return path


def until_calls(mill: Mill, calls: int, within_s: float = 120) -> None:
    """Return once the provider has seen more than `calls` calls."""
    until_sync(lambda: mill.provider.calls > calls, within_s=within_s)
