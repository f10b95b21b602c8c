"""One worker as its supervisor keeps it: started, waited for, started again, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from rowmill.errors import InfrastructureError, UsageError
from rowmill.ops.supervisor import logfiles, records, spawn
from rowmill.ops.supervisor.layout import Layout, Role
from rowmill.ops.supervisor.locks import held
from rowmill.ops.supervisor.restarts import Restarts
from rowmill.settings import Settings

LOOK_EVERY_S = 0.05
_BAD_USAGE = UsageError.exit_code

log = structlog.get_logger(__name__)


class WorkerGivenUp(InfrastructureError):
    """A worker can't be kept alive."""

    def __init__(self, name: str, happened: str, log_file: Path, *, exit_code: int) -> None:
        lines = "".join(f"\n  {line}" for line in logfiles.tail(log_file))
        super().__init__(f"{name} {happened}. The end of {log_file}:{lines}")
        self.exit_code = exit_code


class Child:
    """One worker of a supervisor; at most one process at a time."""

    def __init__(
        self,
        role: Role,
        index: int,
        settings: Settings,
        layout: Layout,
        folders: Sequence[Path],
        *,
        patient: bool,
    ) -> None:
        self.name = f"{role}-{index}"
        self._role, self._index = role, index
        self._settings, self._layout, self._folders = settings, layout, folders
        self._restarts = Restarts(patient=patient)
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._stopping = asyncio.Event()

    @property
    def ready(self) -> bool:
        """True once the present process has become ready."""
        record = records.read(
            self._layout.worker_record(self._role, self._index), records.WorkerRecord
        )
        return bool(record and record.ready and self._process and record.pid == self._process.pid)

    async def keep(self, broker_up: Callable[[], Awaitable[None]]) -> None:
        """Keep the worker alive until `stop`. Raises: WorkerGivenUp."""
        while True:
            await broker_up()
            started_s = time.monotonic()
            async with self._starting:
                if self._stopping.is_set():
                    return
                self._process = await spawn.start_worker(
                    self._settings, self._layout, self._role, self._index, self._folders
                )
            log.info("worker_started", worker=self.name, pid=self._process.pid)
            code = await self._process.wait()
            if self._stopping.is_set():
                return
            delay_s = self._after_death(code, time.monotonic() - started_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    def _after_death(self, code: int, lived_s: float) -> float:
        ready = self.ready
        log.warning(
            "worker_died",
            worker=self.name,
            exit_code=code,
            was_ready=ready,
            lived_s=round(lived_s, 1),
        )
        log_file = self._layout.worker_log(self._role, self._index)
        if code == _BAD_USAGE and not ready:
            raise WorkerGivenUp(self.name, "refused to start", log_file, exit_code=code)
        delay_s = self._restarts.died(time.monotonic(), lived_s=lived_s, ready=ready)
        if delay_s is None:
            happened = (
                f"ended {self._restarts.deaths} times in a row without becoming ready "
                f"(last with {_ending(code)})"
            )
            raise WorkerGivenUp(
                self.name, happened, log_file, exit_code=InfrastructureError.exit_code
            )
        return delay_s

    async def stop(self, within_s: float) -> bool:
        """End the worker: SIGTERM, and SIGKILL after `within_s`. False if it had to be killed."""
        self._stopping.set()
        async with self._starting:  # one that is being started right now is ended too
            process = self._process
        if process is None or process.returncode is not None:
            return True
        _signal(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), within_s)
        except TimeoutError:
            log.error("worker_killed", worker=self.name, waited_s=within_s)
            self.kill()
            await process.wait()
        return process.returncode != -signal.SIGKILL

    def kill(self) -> None:
        """End the worker at once."""
        if self._process is not None:
            _signal(self._process, signal.SIGKILL)

    def cut_log(self) -> None:
        """Keep the worker's log within its size."""
        logfiles.cut(self._layout.worker_log(self._role, self._index))


async def end_orphans(layout: Layout, stop: asyncio.Event, within_s: float) -> None:
    """Wait for workers of a supervisor that is gone; they end by themselves, or are killed.

    They hold their stores and group memberships until then, so nothing can start beside them.
    """
    deadline = time.monotonic() + within_s
    for orphan in records.live_workers(layout):
        if not orphan.supervised:
            continue
        lock = layout.worker_lock(orphan.role, orphan.index)
        log.warning("orphan_found", worker=f"{orphan.role}-{orphan.index}", pid=orphan.pid)
        # The lock is held, so the pid is its holder's and no other process's.
        with contextlib.suppress(ProcessLookupError):
            os.kill(orphan.pid, signal.SIGTERM)
        while held(lock) and not stop.is_set():
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan.pid, signal.SIGKILL)
            await asyncio.sleep(LOOK_EVERY_S)


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _ending(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
