"""The supervisor process: broker and topics up, N workers of each role alive, all down again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from rowmill.errors import InfrastructureError, RowmillError
from rowmill.ops import logs
from rowmill.ops.supervisor import logfiles, records
from rowmill.ops.supervisor.broker import Broker
from rowmill.ops.supervisor.children import LOOK_EVERY_S, Child, end_orphans
from rowmill.ops.supervisor.layout import Layout, Role
from rowmill.ops.supervisor.locks import FileLock
from rowmill.ops.supervisor.worker import KILL_AFTER_DRAIN_S
from rowmill.settings import Settings
from rowmill.topics import creation

ALREADY_SUPERVISED = 75
"""Exit code (EX_TEMPFAIL of sysexits.h) of a supervisor that found another at work."""

DRAINING = "waiting for open calls to end; Ctrl-C kills the workers instead"

_USERS_EVERY_S = 0.1
_LOGS_EVERY_S = 10.0

log = structlog.get_logger(__name__)


class Plan(BaseModel):
    """What a supervisor is asked to run. `keep`: until `rowmill down`, not only while used."""

    model_config = ConfigDict(frozen=True)

    roles: dict[Role, NonNegativeInt]
    play_folders: list[Path]
    keep: bool


def main(plan: Plan, settings: Settings) -> int:
    """Run the supervisor of this home; returns its exit code. Its record tells how it goes."""
    os.umask(0o077)
    layout = Layout.of(settings)
    layout.prepare()
    logs.configure(settings)
    with FileLock(layout.supervisor_lock) as lock:
        if not lock.acquire():
            return ALREADY_SUPERVISED
        return asyncio.run(Supervisor(plan, settings, layout).run())


class Supervisor:
    """One life of the supervisor. Only `run` is called from outside."""

    def __init__(self, plan: Plan, settings: Settings, layout: Layout) -> None:
        former = records.read(layout.supervisor_record, records.SupervisorRecord)
        self._plan, self._settings, self._layout = plan, settings, layout
        self._broker = Broker(settings, former_pid=former.broker_pid if former else None)
        self._children = [
            Child(role, index, settings, layout, plan.play_folders, patient=plan.keep)
            for role, count in plan.roles.items()
            for index in range(count)
        ]
        self._users = FileLock(layout.users_lock)
        self._stop = asyncio.Event()
        self._hurried = False
        self._record = records.SupervisorRecord(
            pid=os.getpid(), keep=plan.keep, phase="starting", roles=plan.roles,
            play_folders=plan.play_folders, bootstrap=settings.bootstrap,
            topic_prefix=settings.topic_prefix,
        )  # fmt: skip

    async def run(self) -> int:
        """Start all, keep all, stop all. Returns the exit code."""
        self._listen()
        self._say("starting")
        failure: RowmillError | None = None
        try:
            await self._serve()
        except RowmillError as error:
            failure = error
            log.error("supervisor_failed", error=str(error))
        except Exception as error:
            failure = InfrastructureError(f"The supervisor failed: {error!r}")
            log.exception("supervisor_failed")
        self._say("stopping", message=DRAINING)
        killed = await self._stop_children()
        self._say("stopping")
        await self._stop_broker()
        if killed and failure is None:
            failure = self._killed(killed)
        if failure is None:
            self._say("stopped")
            return 0
        self._say("failed", message=str(failure), exit_code=failure.exit_code)
        return failure.exit_code

    async def _serve(self) -> None:
        """Serve until a stop is asked for. Raises: RowmillError where that is not possible."""
        await end_orphans(self._layout, self._stop, self._settings.drain_s + KILL_AFTER_DRAIN_S)
        await self._broker.start(lambda line: self._say("starting", message=line))
        self._say("starting")  # whose the broker is must be known even if this process is killed
        await creation.create_topics(self._settings)
        tasks = [
            asyncio.create_task(child.keep(self._broker.up), name=child.name)
            for child in self._children
        ]
        tasks += [
            asyncio.create_task(self._announce_readiness(), name="readiness"),
            asyncio.create_task(self._broker.look_after(), name="broker"),
            asyncio.create_task(self._cut_logs(), name="logs"),
            asyncio.create_task(self._end_without_users(), name="users"),
        ]
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            pending = {*tasks, stop}
            while stop in pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            # Children are stopped through their processes, not by cancelling who waits for them.
            for task in tasks[len(self._children) :]:
                task.cancel()

    async def _announce_readiness(self) -> None:
        while not all(child.ready for child in self._children):
            await asyncio.sleep(LOOK_EVERY_S)
        self._say("running")
        log.info("all_ready", workers=len(self._children))

    async def _cut_logs(self) -> None:
        while True:
            await asyncio.sleep(_LOGS_EVERY_S)
            for child in self._children:
                child.cut_log()
            logfiles.cut(self._layout.supervisor_log)

    async def _end_without_users(self) -> None:
        """Stop with the last command that uses the workers, unless `rowmill up` asked for them.

        The lock is kept until the end: a command that comes meanwhile waits, then starts its own.
        """
        while not self._plan.keep:
            if self._users.acquire(within_s=0):
                self._stop.set()
                return
            await asyncio.sleep(_USERS_EVERY_S)

    async def _stop_children(self) -> list[str]:
        """End all workers at once; return the names of those that had to be killed."""
        within_s = self._settings.drain_s + KILL_AFTER_DRAIN_S
        ended = await asyncio.gather(*(child.stop(within_s) for child in self._children))
        return [child.name for child, clean in zip(self._children, ended, strict=True) if not clean]

    def _killed(self, names: list[str]) -> InfrastructureError:
        why = (
            "a second signal asked for it"
            if self._hurried
            else f"no end within drain_s = {self._settings.drain_s:g} and {KILL_AFTER_DRAIN_S:g} s"
        )
        return InfrastructureError(
            f"{', '.join(names)} had to be killed: {why}. "
            f"Open calls are asked again, with the same idempotency keys, at the next start."
        )

    async def _stop_broker(self) -> None:
        try:
            await self._broker.stop()
        except RowmillError as error:
            log.error("broker_not_stopped", error=str(error))

    def _listen(self) -> None:
        """First SIGTERM or SIGINT: drain and end. A second one: kill the workers now."""
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            if self._stop.is_set():
                self._hurried = True
                for child in self._children:
                    child.kill()
            self._stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)

    def _say(self, phase: records.Phase, *, message: str = "", exit_code: int = 0) -> None:
        self._record = self._record.model_copy(
            update={
                "phase": phase, "message": message, "exit_code": exit_code,
                "broker_pid": self._broker.pid,
            }
        )  # fmt: skip
        with contextlib.suppress(OSError):  # a full disk must not keep the workers from ending
            records.write(self._layout.supervisor_record, self._record)
