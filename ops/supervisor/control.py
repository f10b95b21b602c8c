"""Up, down, and the use of workers for the time of one command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rowmill.errors import InfrastructureError, RowmillError, UsageError
from rowmill.ops.kafka import embedded
from rowmill.ops.supervisor import logfiles, records, spawn
from rowmill.ops.supervisor.layout import ROLES, Layout, Role
from rowmill.ops.supervisor.locks import FileLock, held
from rowmill.ops.supervisor.supervisor import ALREADY_SUPERVISED, Plan
from rowmill.ops.supervisor.worker import KILL_AFTER_DRAIN_S
from rowmill.settings import Settings

LOOK_EVERY_S = 0.05
_SAY_AFTER_S = 3.0
_SETTLE_S = 1.0  # a supervisor looks for users every 0.1 s

ONE_OF_EACH: Mapping[Role, int] = dict.fromkeys(ROLES, 1)

Note = Callable[[str], None]


class SupervisorFailed(InfrastructureError):
    """The supervisor ended, or never began. The exit code is its own: 2 where a worker's was."""

    def __init__(self, message: str, exit_code: int = InfrastructureError.exit_code) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class OtherWorkers(UsageError):
    """The workers of this home are not the ones that this command needs."""


def up(
    settings: Settings,
    play_folders: Sequence[Path],
    roles: Mapping[Role, int] = ONE_OF_EACH,
    *,
    note: Note = lambda line: None,
) -> records.SupervisorRecord:
    """Bring up broker, topics and workers, and leave them running. Returns once all are ready.

    Raises: OtherWorkers where others run under this home; SupervisorFailed with the reason.
    """
    plan = Plan(roles=dict(roles), play_folders=_absolute(play_folders), keep=True)
    supervisor, started = _supervised(settings, plan)
    if not started:
        if not supervisor.keep:
            raise OtherWorkers(
                f"A `rowmill run` has the workers of {settings.home} up, and they end with it. "
                f"Wait for it, or set another ROWMILL_HOME. Nothing was started."
            )
        if supervisor.roles != plan.roles:
            raise OtherWorkers(
                f"Workers run already under {settings.home}: {_named(supervisor.roles)}; asked "
                f"for: {_named(plan.roles)}. First: rowmill down. Nothing was started."
            )
        note(f"already up (supervisor pid {supervisor.pid})")
    return _ready(settings, supervisor.pid, note)


def down(settings: Settings, *, note: Note = lambda line: None) -> bool:
    """Stop the supervisor of this home, its workers and its broker. False: nothing was running.

    Raises: SupervisorFailed where workers had to be killed.
    """
    layout = Layout.of(settings)
    supervisor = _current(layout)
    if supervisor is None:
        return _end_what_was_left(settings, layout, note)
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor.pid, signal.SIGTERM)
    last = _gone(layout, supervisor.pid, note)
    if last is not None and last.phase == "failed":
        raise SupervisorFailed(last.message, last.exit_code)
    return True


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that a command uses. They live at least as long as the `with` block."""

    layout: Layout
    supervisor_pid: int
    started: bool

    def check(self) -> None:
        """Return if the workers are looked after. Raises: SupervisorFailed with the reason."""
        if held(self.layout.supervisor_lock):
            return
        record = records.read(self.layout.supervisor_record, records.SupervisorRecord)
        if record is not None and record.phase == "failed":
            raise SupervisorFailed(record.message, record.exit_code)
        raise SupervisorFailed(
            f"The workers were stopped (supervisor pid {self.supervisor_pid} is gone); see "
            f"{self.layout.supervisor_log}. The same command with the same run id resumes."
        )


@contextmanager
def ensure(
    settings: Settings,
    play_folders: Sequence[Path],
    roles: Mapping[Role, int] = ONE_OF_EACH,
    *,
    note: Note = lambda line: None,
) -> Iterator[Workers]:
    """Have broker, topics and workers up inside the block, and stop afterwards what it started.

    Roles that run under this home already, by `rowmill up`, another run or `rowmill worker`, are
    used as they are; another run that uses the ones started here keeps them alive past the block.
    `note` is told what is waited for. Raises: OtherWorkers, SupervisorFailed.
    """
    layout = Layout.of(settings)
    layout.prepare()
    use = FileLock(layout.users_lock)
    # Not given while a supervisor that lost its last user is ending.
    if not use.acquire(shared=True, within_s=settings.drain_s + 2 * KILL_AFTER_DRAIN_S):
        raise SupervisorFailed(f"The former workers of {layout.home} do not end; see its logs.")
    started = None
    try:
        supervisor, is_new = _needed(settings, layout, _absolute(play_folders), roles)
        started = supervisor.pid if is_new else None
        _ready(settings, supervisor.pid, note)
        yield Workers(layout, supervisor.pid, is_new)
    except BaseException:
        use.release()
        with contextlib.suppress(SupervisorFailed):  # what ended the block says more
            _stopped(layout, started, note)
        raise
    use.release()
    _stopped(layout, started, note)


def _stopped(layout: Layout, pid: int | None, note: Note) -> None:
    """Wait for the end of a supervisor that lost its last user. Raises: SupervisorFailed."""
    if pid is None:
        return
    last = _gone(layout, pid, note, shared_after_s=_SETTLE_S)
    if last is not None and last.phase == "failed":
        raise SupervisorFailed(last.message, last.exit_code)


def _needed(
    settings: Settings, layout: Layout, folders: list[Path], roles: Mapping[Role, int]
) -> tuple[records.SupervisorRecord, bool]:
    """Return the supervisor to rely on, and whether this call started it."""
    supervisor = _current(layout)
    if supervisor is None:
        by_hand = {worker.role for worker in records.live_workers(layout) if not worker.supervised}
        missing = {role: count for role, count in roles.items() if role not in by_hand}
        plan = Plan(roles=missing, play_folders=folders, keep=False)
        supervisor, started = _supervised(settings, plan)
        if started:
            return supervisor, True
    unknown = [
        folder for folder in folders
        if not any(folder.is_relative_to(known) for known in supervisor.play_folders)
    ]  # fmt: skip
    if unknown and supervisor.roles.get("rows"):
        raise OtherWorkers(
            f"The workers under {layout.home} serve plays below "
            f"{', '.join(map(str, supervisor.play_folders)) or 'no folder'}, not below "
            f"{unknown[0]}. Start them for it: rowmill down, rowmill up --plays {unknown[0]}."
        )
    return supervisor, False


def _supervised(settings: Settings, plan: Plan) -> tuple[records.SupervisorRecord, bool]:
    """Return the one supervisor of this home, started now if there was none."""
    layout = Layout.of(settings)
    layout.prepare()
    while True:
        supervisor = _current(layout)
        if supervisor is not None:
            _same_cluster(settings, supervisor)
            return supervisor, False
        process = spawn.start_supervisor(settings, layout, plan.model_dump_json())
        while process.poll() is None:
            supervisor = records.live_supervisor(layout)
            if supervisor is not None and supervisor.pid == process.pid:
                return supervisor, True
            time.sleep(LOOK_EVERY_S)
        if process.returncode != ALREADY_SUPERVISED:
            raise _stillborn(layout, process)


def _current(layout: Layout) -> records.SupervisorRecord | None:
    """Return the live supervisor's record, waiting for one that has not written it yet."""
    while held(layout.supervisor_lock):
        supervisor = records.live_supervisor(layout)
        if supervisor is not None and supervisor.phase in ("starting", "running"):
            return supervisor
        time.sleep(LOOK_EVERY_S)
    return None


def _ready(settings: Settings, pid: int, note: Note) -> records.SupervisorRecord:
    """Wait until all workers are ready. Raises: SupervisorFailed if the supervisor ends before."""
    layout = Layout.of(settings)
    told = ""
    while True:
        supervisor = records.read(layout.supervisor_record, records.SupervisorRecord)
        if supervisor is not None and supervisor.pid == pid and supervisor.phase == "running":
            return supervisor
        if not held(layout.supervisor_lock):
            Workers(layout, pid, started=True).check()
        starting = supervisor is not None and supervisor.phase == "starting"
        if supervisor is not None and starting and supervisor.message not in ("", told):
            told = supervisor.message
            note(told)
        time.sleep(LOOK_EVERY_S)


def _gone(
    layout: Layout, pid: int, note: Note, *, shared_after_s: float = float("inf")
) -> records.SupervisorRecord | None:
    """Wait until the supervisor has ended; return its last record, or None if others use it.

    Ctrl-C in here means: don't wait for open calls.
    """
    since = time.monotonic()
    told = False
    while held(layout.supervisor_lock):
        record = records.read(layout.supervisor_record, records.SupervisorRecord)
        waited_s = time.monotonic() - since
        if record is not None and record.phase == "running" and waited_s > shared_after_s:
            return None
        try:
            if waited_s > _SAY_AFTER_S and record is not None and record.message and not told:
                told = True
                note(record.message)
            time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    record = records.read(layout.supervisor_record, records.SupervisorRecord)
    return record if record is not None and record.pid == pid else None


def _end_what_was_left(settings: Settings, layout: Layout, note: Note) -> bool:
    """Stop what a killed supervisor left: workers that drain, and the broker it started."""
    orphans = [worker for worker in records.live_workers(layout) if worker.supervised]
    deadline = time.monotonic() + settings.drain_s + KILL_AFTER_DRAIN_S
    for orphan in orphans:
        note(f"ending {orphan.role}-{orphan.index} (pid {orphan.pid}), left by a killed supervisor")
        while held(layout.worker_lock(orphan.role, orphan.index)):
            late = time.monotonic() > deadline
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan.pid, signal.SIGKILL if late else signal.SIGTERM)
            time.sleep(LOOK_EVERY_S)
    record = records.read(layout.supervisor_record, records.SupervisorRecord)
    if record is None or record.broker_pid is None or not settings.embedded:
        return bool(orphans)
    ours = embedded.status(settings).pid == record.broker_pid and embedded.stop(settings)
    records.write(layout.supervisor_record, record.model_copy(update={"broker_pid": None}))
    return ours or bool(orphans)


def _same_cluster(settings: Settings, supervisor: records.SupervisorRecord) -> None:
    theirs = (supervisor.bootstrap, supervisor.topic_prefix)
    if theirs != (settings.bootstrap, settings.topic_prefix):
        raise OtherWorkers(
            f"The workers under {settings.home} use the cluster {supervisor.bootstrap} with topic "
            f'prefix "{supervisor.topic_prefix}", this command {settings.bootstrap} with '
            f'"{settings.topic_prefix}". Set the same, or another ROWMILL_HOME.'
        )


def _stillborn(layout: Layout, process: subprocess.Popen[bytes]) -> RowmillError:
    record = records.read(layout.supervisor_record, records.SupervisorRecord)
    if record is not None and record.pid == process.pid and record.message:
        return SupervisorFailed(record.message, record.exit_code)
    lines = "".join(f"\n  {line}" for line in logfiles.tail(layout.supervisor_log))
    return SupervisorFailed(
        f"The supervisor ended at once (exit code {process.returncode}). "
        f"The end of {layout.supervisor_log}:{lines}"
    )


def _absolute(folders: Sequence[Path]) -> list[Path]:
    found = [folder.resolve() for folder in folders]
    for folder in found:
        if not folder.is_dir():
            raise UsageError(
                f"There is no folder {folder} to load plays from. Nothing was started."
            )
    return found


def _named(roles: Mapping[Role, int]) -> str:
    return ", ".join(f"{count} {role}" for role, count in roles.items()) or "none"
