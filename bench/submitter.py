"""The submitter as the measuring process holds it: started, told to go, waited for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from rowmill.ops.supervisor import logfiles, spawn
from rowmill.settings import Settings

END_S = 60.0
"""How long the report may take once every row is in the sheet."""


class SubmitterFailed(RuntimeError):
    """The submitter ended without a report. The message holds the end of its log."""


class Submitter:
    """`bench.submit` as a process. Made by `start`, which returns once it waits for the word."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._log = log

    @classmethod
    def start(
        cls, settings: Settings, *, rows: int, concurrency: int, base_url: str, log: Path
    ) -> Submitter:
        """Start it and wait until it is connected. Raises: SubmitterFailed."""
        options = {"--rows": rows, "--concurrency": concurrency, "--base-url": base_url}
        flags = [text for flag, value in options.items() for text in (flag, str(value))]
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bench.submit", *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=spawn.environment(settings),
            )
        submitter = cls(process, log)
        if _pipe(process.stdout).readline().strip() != b"READY":
            submitter.stop()
            raise submitter._failed()
        return submitter

    def go(self) -> None:
        """Say the word."""
        stdin = _pipe(self._process.stdin)
        stdin.write(b"GO\n")
        stdin.flush()

    def report(self) -> dict[str, Any]:
        """Wait for the end and return the run's report. Raises: SubmitterFailed."""
        try:
            output, _ = self._process.communicate(timeout=END_S)
            report: dict[str, Any] = json.loads(output)
        except (subprocess.TimeoutExpired, ValueError):
            self.stop()
            raise self._failed() from None
        return report

    def stop(self) -> None:
        """End it, however it stands."""
        self._process.kill()
        self._process.wait()

    def _failed(self) -> SubmitterFailed:
        lines = "\n  ".join(logfiles.tail(self._log, 20))
        code = self._process.returncode
        return SubmitterFailed(f"the submitter ended with {code}. Its log:\n  {lines}")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
