"""What runs under one home, without waiting for anything: the answer of `rowmill status`."""

from __future__ import annotations

import asyncio
from typing import TypedDict

from rowmill.ops.kafka import embedded
from rowmill.ops.supervisor import records
from rowmill.ops.supervisor.broker import reachable
from rowmill.ops.supervisor.layout import Layout, Role
from rowmill.settings import Settings


class KafkaStatus(TypedDict):
    """`pid` None: no embedded broker runs, or the cluster is another's."""

    pid: int | None
    bootstrap: str
    ready: bool


class WorkerStatus(TypedDict):
    """`pid` None: it is wanted, and just now being started again."""

    role: Role
    index: int
    pid: int | None
    ready: bool


class SupervisorStatus(TypedDict):
    """`keep` False: it ends with the last `rowmill run` that uses its workers."""

    pid: int
    phase: records.Phase
    keep: bool


class Status(TypedDict):
    """What `rowmill status --json` prints. Fields are only ever added within one `schema`."""

    schema: int
    home: str
    kafka: KafkaStatus
    supervisor: SupervisorStatus | None
    workers: list[WorkerStatus]


def status(settings: Settings) -> Status:
    """Return what runs under the home of `settings`."""
    layout = Layout.of(settings)
    supervisor = records.live_supervisor(layout)
    return {
        "schema": 1,
        "home": str(layout.home),
        "kafka": _kafka(settings),
        "supervisor": (
            {"pid": supervisor.pid, "phase": supervisor.phase, "keep": supervisor.keep}
            if supervisor
            else None
        ),
        "workers": _workers(layout, supervisor),
    }


def _kafka(settings: Settings) -> KafkaStatus:
    if not settings.embedded:
        ready = asyncio.run(reachable(settings.bootstrap))
        return {"pid": None, "bootstrap": settings.bootstrap, "ready": ready}
    broker = embedded.status(settings)
    return {
        "pid": broker.pid if broker.running else None,
        "bootstrap": broker.bootstrap or settings.bootstrap,
        "ready": broker.ready,
    }


def _workers(layout: Layout, supervisor: records.SupervisorRecord | None) -> list[WorkerStatus]:
    found: dict[tuple[Role, int], WorkerStatus] = {}
    for role, count in supervisor.roles.items() if supervisor else ():
        for index in range(count):
            found[role, index] = {"role": role, "index": index, "pid": None, "ready": False}
    for worker in records.live_workers(layout):
        found[worker.role, worker.index] = {
            "role": worker.role, "index": worker.index, "pid": worker.pid, "ready": worker.ready
        }  # fmt: skip
    return list(found.values())
