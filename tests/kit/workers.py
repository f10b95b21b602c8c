"""One worker of a test's own, started by hand: it can be frozen, killed, stopped and watched."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.kit.until import until_sync

PROGRAM = ("-P", "-m", "rowmill")
"""The command line, of the installed package."""


class WorkerProcess:
    """`rowmill worker ROLE --index N` under a home. Started when made; `ready` waits for it."""

    def __init__(
        self,
        role: str,
        index: int,
        home: Path,
        env: Mapping[str, str],
        plays: Path,
        *,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """`env`: the whole environment of the process. `program`: what the interpreter runs."""
        self.role = role
        self.index = index
        self.name = f"{role}-{index}"
        self.home = home
        self._log_path = home / "logs" / f"{self.name}.log"
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, "worker", role]
                + ["--index", str(index), "--plays", str(plays)],
                env=dict(env),
                stdout=log,
                stderr=log,
            )

    @property
    def store(self) -> Path:
        """The directory of its tables."""
        return self.home / "stores" / self.name

    def log(self) -> str:
        """Return what this process has logged."""
        with self._log_path.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def logged(self, event: str) -> list[str]:
        """Return the lines of one event of this process."""
        found = re.compile(rf"\bevent={re.escape(event)}\b")
        return [line for line in self.log().splitlines() if found.search(line)]

    def assignments(self) -> list[set[int]]:
        """Return the partitions of each assignment that it became ready for, in order."""
        told = (re.search(r'partitions="?(\[[^\]]*\])', line) for line in self.logged(READY))
        return [set(ast.literal_eval(found[1])) for found in told if found]

    @property
    def partitions(self) -> set[int]:
        """The partitions of its last assignment, empty before the first."""
        return (self.assignments() or [set()])[-1]

    def ready(self, within_s: float = 60) -> None:
        """Return once it works. Raises: AssertionError where it ends instead."""

        def is_ready() -> bool:
            assert self.process.poll() is None, f"{self.name} ended:\n{self.log()}"
            try:
                record = json.loads((self.home / "workers" / f"{self.name}.json").read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                return False
            return bool(record["ready"] and record["pid"] == self.process.pid)

        until_sync(is_ready, within_s=within_s)

    def freeze(self) -> None:
        """Stop it from running, as a long pause of its machine would; returns once it stands."""
        os.kill(self.process.pid, signal.SIGSTOP)
        seen = psutil.Process(self.process.pid)
        until_sync(lambda: seen.status() == psutil.STATUS_STOPPED, within_s=5)

    def thaw(self) -> None:
        """Let a frozen one go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def kill_9(self) -> None:
        """End it without a chance to write anything."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> None:
        """Tell it to stop, as a planned stop does; `wait` waits for its end."""
        self.process.terminate()

    def wait(self, within_s: float = 60) -> int:
        """Return its exit code once it has ended. Raises: subprocess.TimeoutExpired."""
        return self.process.wait(within_s)

    def stop(self, within_s: float = 60) -> int:
        """Stop it as planned, open calls first, and return its exit code."""
        self.terminate()
        return self.wait(within_s)

    def end(self) -> None:
        """End it in whatever state it is."""
        if self.process.poll() is None:
            self.thaw()
            self.kill_9()


READY = "partitions_ready"
