"""The practice provider as a process of its own, for tests and benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from types import TracebackType
from typing import Any, Self

# Only this command's module: the whole command line would load every other command first.
_SERVE = "from rowmill.cli.provider import provider; provider()"


class RunningProvider:
    """A practice provider on a free port. Use it as a context manager, or call `stop`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self._process = process

    @classmethod
    def start(
        cls,
        *,
        latency_ms: float = 0,
        limits: str = "",
        fail_every: int = 0,
        batch_max: int = 50,
        port: int = 0,
    ) -> Self:
        """Start the provider and return once it answers. Raises: RuntimeError where it ends first."""
        options = {
            "--port": port,
            "--latency-ms": latency_ms,
            "--limits": limits,
            "--fail-every": fail_every,
            "--batch-max": batch_max,
        }
        flags = [text for flag, value in options.items() for text in (flag, str(value))]
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, "serve", *flags], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the practice provider ended with {process.wait()}: {line}")
        return cls(process, line.removeprefix("listening on ").strip())

    def stats(self) -> dict[str, Any]:
        """Return the book, see `ops/provider/book.py`."""
        return self._ask("/stats")

    def stats_of(self, key: str) -> dict[str, Any]:
        """Return how often one idempotency key came and was answered."""
        return self._ask("/stats?" + urllib.parse.urlencode({"key": key}))

    def repeated_keys(self) -> dict[str, int]:
        """Return the idempotency keys that came more than once, with how often."""
        repeated: dict[str, int] = self.stats()["repeated"]
        return repeated

    @property
    def calls(self) -> int:
        """Requests for an operation so far."""
        return int(self.stats()["calls"])

    def reset(self) -> None:
        """Forget everything counted so far."""
        self._ask("/reset", method="POST")

    def stop(self) -> int:
        """End the process and return its exit code. Calling it again changes nothing."""
        self._process.terminate()
        code = self._process.wait(timeout=10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _ask(self, path: str, method: str = "GET") -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
