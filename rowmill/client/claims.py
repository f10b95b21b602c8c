"""Become a run's main, stay it, leave it: the record in `runs` and the lock beside it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from rowmill.client.viewed_log import ViewedLog
from rowmill.errors import InfrastructureError, UsageError
from rowmill.ops.supervisor.locks import FileLock
from rowmill.streams.core.lives import (
    RENEW_MS,
    Claim,
    Driven,
    Main,
    Report,
    Watch,
    next_step,
    won,
)
from rowmill.streams.ports import Clock
from rowmill.topics.contracts import RunRecord
from rowmill.topics.views import RunsView

log = structlog.get_logger()

WATCH_STEP_S = 1.0
"""How often a claimant that watches a silent main looks at the log again."""


class RunDriven(UsageError):
    """Another main drives this run, and it lives. Nothing was called."""

    def __init__(self, run: str, who: str) -> None:
        super().__init__(
            f"Run {run} is being driven by {who}. Stop that one first, or start a new run "
            "without --run-id. Nothing was called."
        )


class LifeLost(InfrastructureError):
    """This main was silent for so long that another followed it."""

    def __init__(self, run: str, by: RunRecord) -> None:
        super().__init__(
            f"Run {run} was taken over by life {by.life} (pid {by.pid}): this process was silent "
            "for more than 20 s. It has stopped; the other goes on."
        )


class RunLock:
    """The lock file of a run in one state directory: held means its main lives."""

    def __init__(self, home: Path, run: str) -> None:
        folder = home / "runs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._run = run
        self._lock = FileLock(folder / f"{run}.lock")

    def take(self) -> None:
        """Take the lock. Raises: RunDriven where a live process holds it."""
        if not self._lock.acquire(within_s=0):
            raise RunDriven(self._run, "another process on this machine")

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        self._lock.release()


Draft = Callable[[RunRecord | None], RunRecord]
"""Makes the record to claim with, from the one that holds: everything but life, claim, state."""


async def claim(
    runs: ViewedLog[RunsView],
    run: str,
    *,
    instance: str,
    clock: Clock,
    draft: Draft,
    on_watch: Callable[[RunRecord], None],
    again: bool = False,
) -> tuple[RunRecord, RunRecord | None]:
    """Become the run's main, or learn that all its rows have ended.

    `on_watch` is told once of a silent main that has to be watched for 20 s. `again`: claim a
    finished run too. The caller holds the run's lock. Returns: our record (state "claiming") and the one it follows; or the finished
    record twice. Raises: RunDriven; UsageError or InfrastructureError of the log.
    """
    began_ms = clock.monotonic_ms()
    seen_first = _main(runs.view.get(run))
    told = False
    while True:
        held = runs.view.get(run)
        step = next_step(
            seen_first,
            _main(held),
            instance=instance,
            watched_ms=clock.monotonic_ms() - began_ms,
            again=again,
        )
        if isinstance(step, Report):
            assert held is not None
            return held, held
        if isinstance(step, Driven):
            raise RunDriven(run, f"pid {step.main.pid} of instance {step.main.instance}")
        if isinstance(step, Claim):
            return await _write_claim(runs, run, step.life, draft, held), held
        assert isinstance(step, Watch)
        if not told and held is not None:
            on_watch(held)
            told = True
        await asyncio.sleep(min(WATCH_STEP_S, step.for_ms / 1000))
        await runs.read_on()


async def _write_claim(
    runs: ViewedLog[RunsView], run: str, life: int, draft: Draft, held: RunRecord | None
) -> RunRecord:
    ours = secrets.token_hex(8)
    record = draft(held).model_copy(update={"life": life, "claim": ours, "state": "claiming"})
    await runs.write(run, record, source=f"rowmill/run/{run}", run=run)
    await runs.read_on()
    held = runs.view.get(run)
    if held is None or not won(_main(held), life=life, claim=ours):
        who = f"pid {held.pid} of instance {held.instance}" if held else "nobody: it was forgotten"
        raise RunDriven(run, who)
    log.info("run_claimed", run=run, life=life)
    return held


def _main(record: RunRecord | None) -> Main | None:
    if record is None:
        return None
    return Main(
        record.life, record.claim, record.state, record.instance, record.pid, record.renewals
    )


class Life:
    """Our life as a run's main: the record as we last wrote it, renewed every 3 s.

    `lost` is set to LifeLost when another life stands in the log: whoever drives must stop then.
    """

    def __init__(self, runs: ViewedLog[RunsView], record: RunRecord, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock
        self._writing = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None
        self.record = record
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost.add_done_callback(lambda done: done.cancelled() or done.exception())

    def start(self) -> None:
        """Begin to renew."""
        self._renewing = asyncio.create_task(self._renew(), name=f"renew {self.record.run}")

    async def stop(self) -> None:
        """Stop renewing; the last written state stands."""
        task, self._renewing = self._renewing, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def write(self, **changes: Any) -> None:
        """Write our record with `changes`, durable on return. Raises: LogUnwritable, LifeLost."""
        async with self._writing:
            self._raise_if_lost()
            record = self.record.model_copy(
                update={**changes, "updated_at_ms": self._clock.wall_ms()}
            )
            await self._runs.write(
                record.run, record, source=f"rowmill/run/{record.run}", run=record.run
            )
            self.record = record  # what was not acknowledged is not what we said

    async def _renew(self) -> None:
        while not self.lost.done():
            await asyncio.sleep(RENEW_MS / 1000)
            try:
                await self.write(renewals=self.record.renewals + 1)
            except LifeLost as error:
                if not self.lost.done():
                    self.lost.set_exception(error)
            except InfrastructureError as error:
                # The broker is away or refused once; the next renewal tries again, and a main that
                # stays silent too long is followed.
                log.warning("run_not_renewed", run=self.record.run, reason=str(error))

    def _raise_if_lost(self) -> None:
        held = self._runs.view.get(self.record.run)
        if held is not None and held.life > self.record.life:
            raise LifeLost(self.record.run, held)
