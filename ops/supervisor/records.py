"""What supervisor and workers write about themselves: small JSON files, replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rowmill.ops.supervisor.layout import ROLES, Layout, Role
from rowmill.ops.supervisor.locks import held

Phase = Literal["starting", "running", "stopping", "stopped", "failed"]


class WorkerRecord(BaseModel):
    """One worker process. `started` is wall-clock seconds, for people only."""

    model_config = ConfigDict(frozen=True)

    role: Role
    index: int
    pid: int
    started: float
    ready: bool = False
    supervised: bool = False


class SupervisorRecord(BaseModel):
    """One supervisor.

    `keep` False: it ends with the last command that uses its workers. `broker_pid`: the embedded
    broker that a supervisor of this home started, and so has to stop; None: not ours to stop.
    """

    model_config = ConfigDict(frozen=True)

    pid: int
    keep: bool
    phase: Phase
    message: str = ""
    exit_code: int = 0
    roles: dict[Role, int]
    play_folders: list[Path]
    bootstrap: str
    topic_prefix: str
    broker_pid: int | None = None


Record = TypeVar("Record", WorkerRecord, SupervisorRecord)


def write(path: Path, record: BaseModel) -> None:
    """Replace the file in one step: a reader sees the old record or the new one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(record.model_dump_json() + "\n", encoding="utf-8")
    draft.replace(path)


def read(path: Path, kind: type[Record]) -> Record | None:
    """Return the record, or None where there is none that this version can read."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def live_supervisor(layout: Layout) -> SupervisorRecord | None:
    """Return the record of the supervisor that runs now; None: none runs, or it has just begun."""
    if not held(layout.supervisor_lock):
        return None
    return read(layout.supervisor_record, SupervisorRecord)


def live_workers(layout: Layout) -> list[WorkerRecord]:
    """Return the workers that run now under this home, by role and index."""
    found = []
    for path in (layout.home / "workers").glob("*.json"):
        record = read(path, WorkerRecord)
        if record and held(layout.worker_lock(record.role, record.index)):
            found.append(record)
    return sorted(found, key=lambda worker: (ROLES.index(worker.role), worker.index))
