"""The processes of a seed: broker, workers, provider; who is killed is started again."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from rowmill.settings import Settings
from rowmill.streams.adapters.history import history_of
from rowmill.streams.ports import Note
from tests.faults.seeds.provider import SeedProvider
from tests.faults.seeds.shape import PLAY
from tests.kit.clocks import MovedClock, libfaketime
from tests.kit.mill import Mill
from tests.kit.proxy import TunedBroker
from tests.kit.workers import PROGRAM, WorkerProcess

ROOT = Path(__file__).parents[3]
CANARY = "canary/7f3a+Zq_s3cret"
"""A secret that no file, topic or log may hold."""

LEASE_S = 4.0
SESSION_S = 6.0
SETTINGS: dict[str, Any] = {
    "session_timeout_s": SESSION_S,
    "heartbeat_s": 1,
    "lease_s": LEASE_S,
    "ask_again_s": 3,
    "chunk_rows": 20,
    "drain_s": 20,
}
ROLES = (("rows", 2), ("dispatch", 2), ("sink", 1))
BEHIND_PROXY = "dispatch-1"
"""The worker that reaches the broker through the proxy: it can be cut off alone."""

CLOCK_MOVES = "dispatch-0"
"""The worker whose wall clock can be moved, where libfaketime is installed."""

PLANTED = ("-m", "tests.faults.seeds.planted")


class World:
    """Everything that runs for one seed. Use it as a context manager."""

    def __init__(
        self, home: Path, rng_seed: str, *, latency_s: float = 0.2, planted: str | None = None
    ) -> None:
        self.home = home
        self.history = home / "history"
        self.chance = random.Random(rng_seed)
        self.note: Note = history_of(Settings(history=self.history), "runner")
        note_provider = history_of(Settings(history=self.history), "provider")
        moods = random.Random(f"{rng_seed} provider")
        self.provider = SeedProvider(note_provider, moods, latency_s, CANARY)
        self.broker = TunedBroker(home)
        self.workers: dict[str, WorkerProcess] = {}
        self.frozen: set[str] = set()
        self._cut: tuple[str, list[str]] | None = None
        self.memory_mb: dict[str, float] = {}
        self._planted = planted
        self._looked_s = 0.0
        self.clock: MovedClock | None = None
        self._mill: Mill | None = None

    @property
    def mill(self) -> Mill:
        """Its command line and settings."""
        assert self._mill is not None
        return self._mill

    def by(self, name: str) -> str:
        """Return how the history calls a worker's present process."""
        worker = self.workers[name]
        return f"{worker.role}-{worker.process.pid}"

    def start_workers(self) -> None:
        """Start every worker, and return once all work."""
        for role, count in ROLES:
            for index in range(count):
                self.start_worker(role, index)
        for worker in self.workers.values():
            worker.ready()

    def start_worker(self, role: str, index: int, **env: str) -> None:
        """Start one worker, or start it again."""
        name = f"{role}-{index}"
        if name == BEHIND_PROXY:
            env["ROWMILL_KAFKA"] = self.broker.behind_proxy
        if name == CLOCK_MOVES and self.clock is not None:
            env |= self.clock.env
        program: Sequence[str] = PROGRAM
        if self._planted is not None:
            program = (*PLANTED, self._planted)
            env["PYTHONPATH"] = str(ROOT)
        self.workers[name] = self.mill.worker(role, index, program=program, **env)
        if name == BEHIND_PROXY and self._cut is not None:
            self.note_cut(self._cut[0])

    def note_cut(self, how: str) -> None:
        """Say that the worker behind the proxy is cut off; so is one that is started meanwhile."""
        by = self.by(BEHIND_PROXY)
        self._cut = how, [*(self._cut[1] if self._cut else []), by]
        self.note("cut", target=by, how=how)

    def note_mended(self) -> None:
        """Say that its way to the broker is open again."""
        for by in self._cut[1] if self._cut else ():
            self.note("mended", target=by)
        self._cut = None

    def keep(self) -> None:
        """Start again whoever has ended; look at how much memory everybody takes."""
        for name, worker in list(self.workers.items()):
            code = worker.process.poll()
            if code is not None and name not in self.frozen:
                self.note("ended", target=self.by(name), code=code)
                self.start_worker(worker.role, worker.index)
        if time.monotonic() - self._looked_s > 0.5:
            self._looked_s = time.monotonic()
            for name in self.workers:
                self._look_at_memory(name)

    def _look_at_memory(self, name: str) -> None:
        try:
            rss = psutil.Process(self.workers[name].process.pid).memory_info().rss
        except psutil.Error:
            return
        by = self.by(name)
        self.memory_mb[by] = max(self.memory_mb.get(by, 0.0), rss / 1e6)

    def stop_workers(self, within_s: float = 60) -> list[int]:
        """Stop all workers as planned; return their exit codes."""
        for worker in self.workers.values():
            worker.terminate()
        return [worker.wait(within_s) for worker in self.workers.values()]

    def __enter__(self) -> Self:
        (self.home / "plays").mkdir(parents=True)
        if libfaketime() is not None:
            self.clock = MovedClock(self.home / "clock")
        play = self.home / "plays" / "play.py"
        play.write_text(PLAY)
        self.provider.__enter__()
        self.broker.__enter__()
        os.environ.pop("ROWMILL_HISTORY", None)
        self._mill = Mill(
            self.home,
            play=play,
            base_url=self.provider.url,
            kafka_port=self.broker.settings.kafka_port,
            history=self.history,
            **SETTINGS,
        )
        self._mill.env["ROWMILL_SECRET_CANARY"] = CANARY
        self._mill.__enter__()
        self._mill.up(rows=0, dispatch=0, sink=0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.broker.proxy.release()
        self.broker.proxy.mend()
        self.mill.__exit__(None, None, None)
        self.broker.__exit__(kind, error, trace)
        self.provider.__exit__(kind, error, trace)
