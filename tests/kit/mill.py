"""A whole Rowmill of a test's own: broker, workers and provider as processes, driven by its CLI."""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rowmill.settings import Settings
from tests.kit.broker import free_port
from tests.kit.provider import RunningProvider
from tests.kit.until import until_sync
from tests.kit.workers import PROGRAM, WorkerProcess

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

    def __init__(
        self,
        home: Path,
        *,
        latency_ms: float = 50,
        play: Path = EXAMPLE / "play.py",
        base_url: str | None = None,
        **settings: object,
    ) -> None:
        """`settings`: of `rowmill.settings`, given to every process by environment.

        `play`: what runs are of. `base_url`: whom it asks; unset: the practice provider, which then
        answers after `latency_ms`.
        """
        self.home = home
        self.play = play
        self.env = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith("ROWMILL_")
            },
            "ROWMILL_HOME": str(home),
            "ROWMILL_KAFKA_PORT": str(free_port()),
            **{f"ROWMILL_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self._practice = None if base_url else RunningProvider.start(latency_ms=latency_ms)
        self.base_url = base_url or self.provider.url
        self._runs: list[RunningRun] = []
        self._workers: list[WorkerProcess] = []

    @property
    def provider(self) -> RunningProvider:
        """The practice provider."""
        assert self._practice is not None, "this mill asks another provider"
        return self._practice

    @property
    def settings(self) -> Settings:
        """What its processes run with."""
        return Settings(
            home=self.home,
            kafka=self.env.get("ROWMILL_KAFKA", ""),
            kafka_port=int(self.env["ROWMILL_KAFKA_PORT"]),
            topic_prefix=self.env.get("ROWMILL_TOPIC_PREFIX", ""),
        )

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
        self.rowmill("up", "--plays", str(self.play.parent), *flags)

    def worker(
        self, role: str, index: int, *, program: Sequence[str] = PROGRAM, **env: str
    ) -> WorkerProcess:
        """Start one worker by hand; it is this test's to freeze, kill, stop and start again.

        `env`: of this process alone, beside the mill's. `program`: what the interpreter runs instead.
        """
        worker = WorkerProcess(
            role, index, self.home, self.env | env, self.play.parent, program=program
        )
        self._workers.append(worker)
        return worker

    def start_run(
        self, rows: Path, run_id: str, *flags: str, play: Path | None = None
    ) -> RunningRun:
        """Start a play (the mill's) over `rows` (a CSV) and return at once."""
        out = self.home / f"{run_id}.csv"
        command = [
            *(sys.executable, "-m", "rowmill", "run", str(play or self.play)),
            *("--input", str(rows), "--out", str(out), "--run-id", run_id, "--json"),
            *("--param", f"base_url={self.base_url}", *flags),
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
        for worker in self._workers:
            worker.end()
        try:
            self.rowmill("down")
        finally:
            if self._practice is not None:
                self._practice.stop()
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
