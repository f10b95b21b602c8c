"""One worker process: its lock, its record, its logs, and the role's main inside."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import structlog

from rowmill.errors import InfrastructureError
from rowmill.ops import logs
from rowmill.ops.supervisor import descriptors, records
from rowmill.ops.supervisor.layout import Layout, Role
from rowmill.ops.supervisor.locks import FileLock
from rowmill.settings import Settings
from rowmill.topics import creation

# A worker that was killed leaves its lock at once, one that ends may still close its tables.
_FORMER_WORKER_S = 2.0
KILL_AFTER_DRAIN_S = 10.0
"""Faust may hang at its exit (faust-streaming 324): past the drain time by this, it is killed."""

log = structlog.get_logger(__name__)


class RoleMain(Protocol):
    """What each role's `app.main` is. Returns the exit code."""

    def __call__(
        self,
        settings: Settings,
        store: Path,
        on_ready: Callable[[], None],
        play_folders: Sequence[Path],
    ) -> int: ...


def role_main(role: Role) -> RoleMain:
    """Import a role. Late: a worker of one role need not load the others' libraries."""
    return cast(RoleMain, import_module(f"rowmill.streams.{role}.app").main)


def run(
    role: Role, index: int, settings: Settings, play_folders: Sequence[Path], *, supervised: bool
) -> int:
    """Run one role in the foreground until SIGTERM or SIGINT. Returns the exit code.

    Raises: InfrastructureError where this worker runs already under this home, where it may open too
    few files, or where the topics are not as the catalogue says (nothing was read then).
    """
    os.umask(0o077)
    descriptors.ensure()
    layout = Layout.of(settings)
    layout.prepare()
    logs.configure(settings)
    structlog.contextvars.bind_contextvars(role=role, index=index)
    with FileLock(layout.worker_lock(role, index)) as lock:
        if not lock.acquire(within_s=_FORMER_WORKER_S):
            other = records.read(layout.worker_record(role, index), records.WorkerRecord)
            pid = other.pid if other else "unknown"
            raise InfrastructureError(
                f"{role}-{index} runs already under {layout.home} (pid {pid}). "
                f"Stop it, or start this one with another --index."
            )
        record = records.WorkerRecord(
            role=role, index=index, pid=os.getpid(), started=time.time(), supervised=supervised
        )
        records.write(layout.worker_record(role, index), record)
        if supervised:
            _stop_with_the_supervisor(settings)
        return _work(record, layout, settings, play_folders)


def _work(
    record: records.WorkerRecord, layout: Layout, settings: Settings, play_folders: Sequence[Path]
) -> int:
    creation.check(settings)

    def on_ready() -> None:
        ready = record.model_copy(update={"ready": True})
        records.write(layout.worker_record(record.role, record.index), ready)
        log.info("worker_ready", pid=record.pid)

    store = layout.store(record.role, record.index)
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    log.info("worker_starting", pid=record.pid, bootstrap=settings.bootstrap)
    code = role_main(record.role)(settings, store, on_ready, play_folders)
    log.info("worker_ended", pid=record.pid, exit_code=code)
    return code


def _stop_with_the_supervisor(settings: Settings) -> None:
    """Drain and end once the supervisor is gone, however it went: nothing lives on unseen."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        log.warning("supervisor_gone", exit_code=3)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(settings.drain_s + KILL_AFTER_DRAIN_S)
        os._exit(3)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
