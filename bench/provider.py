"""The provider of a measurement: our practice provider, or another one that counts the same."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rowmill.ops.provider import answers

COMMAND_VARIABLE = "ROWMILL_BENCH_PROVIDER"
"""Names a command with `{port}` and `{delay_ms}` that serves instead of the practice provider."""

READY_S = 30.0

Check = Callable[[str, Any, Any], bool]
"""(symbol, answer of the first call, answer of the second) -> whether both are right."""


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """What a provider counted. `repeated`: calls whose question had come before.

    `repeated_answered`: those among them that came after the mark for a question answered before
    it; all else that is repeated was in flight then, or was repeated without any kill.
    """

    calls: int
    repeated: int
    repeated_answered: int
    in_flight_max: int

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> Self:
        """Read `GET /stats`. In a foreign provider's `repeated` is the number itself."""
        if isinstance(stats["repeated"], int):
            return cls(
                stats["calls"],
                stats["repeated"],
                stats["repeated_answered"],
                stats["max_in_flight"],
            )
        return cls(
            stats["calls"],
            stats["questions_repeated"],
            stats["questions_repeated_answered"],
            stats["in_flight_max"],
        )


class BenchProvider:
    """A provider process on a port of its own."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, check: Check) -> None:
        self.url = url
        self.pid = process.pid
        self.check = check
        self._process = process

    @classmethod
    def start(cls, delay_ms: int, log: Path) -> Self:
        """Start it and wait until it answers. Raises: RuntimeError with the end of its log."""
        port = free_port()
        template = os.environ.get(COMMAND_VARIABLE, "")
        with log.open("ab") as output:
            process = subprocess.Popen(
                command(template, port, delay_ms), stdout=output, stderr=output
            )
        check = echoed if template else exact
        provider = cls(process, f"http://127.0.0.1:{port}", check)
        deadline = time.monotonic() + READY_S
        while True:
            try:
                provider.counts()
                return provider
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                provider.stop()
                raise RuntimeError(f"the provider did not start:\n{log.read_text()}") from None

    def counts(self) -> ProviderCounts:
        """Return what it counted so far."""
        return ProviderCounts.of(self._ask("/stats"))

    def mark(self) -> None:
        """Call just before a kill: tells repeated calls apart."""
        self._ask("/mark", b"{}")

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, data=body)
        with urllib.request.urlopen(request, timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
            return answer


def command(template: str, port: int, delay_ms: int) -> list[str]:
    """Return the command of the provider; an empty template: the practice provider."""
    if template:
        return [part.format(port=port, delay_ms=delay_ms) for part in shlex.split(template)]
    serve = [sys.executable, "-P", "-m", "rowmill", "provider", "serve"]
    return [*serve, "--port", str(port), "--latency-ms", str(delay_ms)]


def exact(symbol: str, company: Any, domain: Any) -> bool:
    """Tell whether these are the very answers of the practice provider."""
    expected = answers.company(symbol)
    return bool(company == expected and domain == answers.domain(expected["name"]))


def echoed(symbol: str, company: Any, domain: Any) -> bool:
    """Tell whether both answers say that they belong to this row, whatever else they say."""
    try:
        name = company["name"]
        return bool(
            company["symbol"] == symbol
            and symbol in name
            and domain["company"] == name
            and symbol.lower() in domain["domain"]
        )
    except (TypeError, KeyError):
        return False


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as attempt:
        attempt.bind(("127.0.0.1", 0))
        port: int = attempt.getsockname()[1]
        return port
