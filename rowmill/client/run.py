"""The handle of a run: how it stands, its end, a pause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from rowmill.client.claims import LifeLost
from rowmill.client.drive import Drive, Means
from rowmill.client.progress import Progress
from rowmill.client.report import RunReport, report
from rowmill.client.sheet import SheetView
from rowmill.client.trouble import Trouble
from rowmill.errors import InfrastructureError, RowmillError

log = structlog.get_logger()

STALLED_S = 30.0
"""Rows are fed, none ended for this long: the progress says so."""

UNSERVED_S = 3.0
"""A worker said that it lacks the play, and no row ended for this long: none has it."""

LEAVE_S = 10.0
"""Longest wait for the broker to take our last word."""


class Run:
    """A run that this process drives, or (finished before) only tells about again."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._record = means.life.record
        self.id = self._record.run
        self.dataset = self._record.dataset
        self._sheet = SheetView(means.settings, self._record)
        self._drive = Drive(means, self._sheet)
        self._trouble = Trouble(means.settings, means.follower.reader, self._record)
        self._driving: asyncio.Task[RunReport] | None = None

    @property
    def life(self) -> int:
        """Number of this life of the run, from 1."""
        return self._record.life

    @property
    def resumed(self) -> bool:
        """True where an older life worked on this run."""
        return self._means.previous is not None

    @property
    def finished_before(self) -> bool:
        """True where all rows had ended before: nothing is fed."""
        return self._record.state == "finished"

    def watch(self, check: Callable[[], None]) -> None:
        """Call `check` while the run goes on; what it raises ends the run."""
        self._drive.checks.append(check)

    def begin(self) -> None:
        """Begin to drive, once."""
        if self._driving is None:
            self._driving = asyncio.create_task(self._driven(), name=f"run {self.id}")

    async def done(self) -> RunReport:
        """Wait for the end. Raises: what ended the run; RowmillErrors are for the user.

        Cancelling the wait leaves the run going; `pause` ends it.
        """
        self.begin()
        assert self._driving is not None
        return await asyncio.shield(self._driving)

    async def pause(self, reason: str) -> RunReport:
        """End this life: rows that no worker has admitted wait for the next one.

        On return `paused` is durable. Raises: InfrastructureError where the broker did not take it.
        """
        await self._stop_driving()
        await self._leave(reason)
        return await self._report()

    async def close(self) -> None:
        """Let go of the lock, the reader and whatever still runs. Idempotent."""
        await self._stop_driving()
        await self._trouble.stop()
        await self._means.life.stop()
        try:
            await self._means.follower.stop()
        except InfrastructureError:
            pass  # it has ended the run, which said so
        self._means.lock.release()

    def progress(self) -> Progress:
        """Return how the run stands now."""
        drive = self._drive
        counts, total = drive.counts, self._means.source.total
        speed = drive.speed.rows_per_s()
        left = total - drive.ended
        open_rows = max(0, min(left, drive.fed - drive.ended))
        return Progress(
            phase=drive.phase,
            run=self.id,
            dataset=self.dataset,
            life=self._record.life,
            total=total,
            fed=drive.fed,
            counts=counts,
            running=min(open_rows, self._record.options.concurrency),
            rows_per_s=speed,
            left_s=left / speed if speed else None,
            behind=drive.behind,
            trouble=self._trouble.now() or self._stalled(open_rows),
        )

    def _stalled(self, open_rows: int) -> str:
        still_s = time.monotonic() - self._drive.moved_s
        if not open_rows:
            return ""
        if self._trouble.unserved and still_s >= UNSERVED_S:
            return self._trouble.unserved
        return f"no row ended for {still_s:.0f} s" if still_s >= STALLED_S else ""

    async def _driven(self) -> RunReport:
        if self.finished_before:
            self._drive.phase = "done"
            return await self._report()
        self._means.life.start()
        self._drive.halted = lambda: self._trouble.halted
        try:
            await self._trouble.start()
            await self._guarded(self._drive.to_the_end())
        except asyncio.CancelledError:
            raise
        except LifeLost:
            raise  # the run is another's now: no word of ours
        except Exception as error:
            await self._leave_if_possible(str(error))
            raise
        return await self._report()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`; the death of a reader or the loss of our life ends it."""
        task = asyncio.create_task(work)
        alarms: list[asyncio.Future[None]] = [
            self._means.life.lost,
            self._means.follower.reader.failed,
            self._means.runs.reader.failed,
        ]
        try:
            await asyncio.wait([task, *alarms], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        for alarm in alarms:
            if alarm.done():
                alarm.result()
        task.result()

    async def _stop_driving(self) -> None:
        task, self._driving = self._driving, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def _leave(self, reason: str) -> None:
        """Write our last word, bounded in time. Raises: InfrastructureError."""
        life = self._means.life
        if life.record.state in ("finished", "stopped"):
            return
        await life.stop()
        try:
            await asyncio.wait_for(self._drive.pause(reason), LEAVE_S)
        except TimeoutError as error:
            raise InfrastructureError(
                f"Kafka at {self._means.settings.bootstrap} did not take the word that run "
                f"{self.id} is paused. Its rows may still be worked off; look at it: "
                f"rowmill runs show {self.id}."
            ) from error

    async def _leave_if_possible(self, reason: str) -> None:
        try:
            await self._leave(reason)
        except RowmillError as error:
            log.warning("run_not_paused", run=self.id, reason=str(error))

    async def _report(self) -> RunReport:
        counts = self._drive.counts
        return report(
            run_id=self.id,
            dataset=self.dataset,
            state=self._means.life.record.state,
            reason=self._means.life.record.reason,
            total=self._means.source.total,
            counts=counts,
            before=self._drive.before,
            retried=self._drive.retried,
            life=self._record.life,
            wall_s=self._drive.wall_s,
            sheet=self._sheet.shown,
            failures=await self._sheet.failures(counts),
        )
