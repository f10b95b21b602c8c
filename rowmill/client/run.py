"""One life of a run: feed its rows, follow them to their end, leave a word in `runs`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from rowmill.client.claims import Life, LifeLost, RunLock
from rowmill.client.events import Events
from rowmill.client.feed import Feeder
from rowmill.client.follow import Follower
from rowmill.client.lanes import ensure_lanes
from rowmill.client.progress import Phase, Progress, Speed
from rowmill.client.report import RunReport, report
from rowmill.client.sheet import SheetView
from rowmill.client.source import Source
from rowmill.client.trouble import Trouble
from rowmill.client.viewed_log import ViewedLog
from rowmill.errors import InfrastructureError
from rowmill.settings import Settings
from rowmill.streams.adapters.log_writer import LogWriter
from rowmill.streams.core.accounting import Counts
from rowmill.streams.ports import Clock
from rowmill.topics.contracts import RunRecord
from rowmill.topics.contracts.runs import RunState
from rowmill.topics.views import LanesView, RunsView

log = structlog.get_logger()

LOOK_EVERY_S = 0.25
"""How often a main looks whether something is wrong while no row ends."""

EVENT_EVERY_S = 1.0
"""At most one progress event in this time."""

QUIET_S = 3.0
QUIET_S_MAX = 60.0
"""After a stop, admitted rows run to their end: nothing ended for QUIET_S says they have. One that
takes longer than QUIET_S_MAX is told as pending; its outcome still reaches the sheet."""

LEAVE_S = 10.0
"""Longest wait for the broker to take our last word."""

T = TypeVar("T")


class RowsUnaccounted(InfrastructureError):
    """The counts do not add up to the input: something in the workers is broken."""


@dataclass(frozen=True, slots=True)
class Driven:
    """What a run is driven with. `previous`: the record that our life follows, None for a new run."""

    settings: Settings
    writer: LogWriter
    runs: ViewedLog[RunsView]
    lanes: ViewedLog[LanesView]
    clock: Clock
    source: Source
    life: Life
    follower: Follower
    lock: RunLock
    previous: RunRecord | None


class Run:
    """A run that this process drives, or (finished before) only tells about again."""

    def __init__(self, with_: Driven) -> None:
        self._with = with_
        self._record = with_.life.record
        self.id = self._record.run
        self.dataset = self._record.dataset
        self._before = with_.follower.counts()
        self._began_s = time.monotonic()
        self._phase: Phase = "starting"
        self._speed = Speed()
        self._fed = 0
        self._behind = 0
        self._trouble = Trouble(with_.settings, with_.follower.reader)
        self._sheet = SheetView(with_.settings, self._record)
        self._events = Events(with_.writer, self._record, with_.clock)
        self._driving: asyncio.Task[RunReport] | None = None
        self._checks: list[Callable[[], None]] = []
        self._looked_s = 0.0

    @property
    def life(self) -> int:
        """Number of this life of the run, from 1."""
        return self._record.life

    @property
    def resumed(self) -> bool:
        """True where an older life worked on this run."""
        return self._with.previous is not None

    @property
    def finished_before(self) -> bool:
        """True where all rows had ended before: nothing is fed."""
        return self._record.state == "finished"

    def watch(self, check: Callable[[], None]) -> None:
        """Call `check` while the run goes on; what it raises ends the run."""
        self._checks.append(check)

    def begin(self) -> None:
        """Begin to drive, once."""
        if self._driving is None:
            self._driving = asyncio.create_task(self._drive(), name=f"run {self.id}")

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
        task, self._driving = self._driving, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._leave("paused", reason)
        return await self._report()

    async def close(self) -> None:
        """Let go of the lock, the reader and whatever still runs. Idempotent."""
        task, self._driving = self._driving, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
        await self._trouble.stop()
        await self._with.life.stop()
        try:
            await self._with.follower.stop()
        except InfrastructureError:
            pass  # it has ended the run, which said so
        self._with.lock.release()

    def progress(self) -> Progress:
        """Return how the run stands now."""
        counts = self._with.follower.counts()
        total = self._with.source.total
        speed = self._speed.rows_per_s()
        open_rows = max(0, min(self._fed, total) - counts.ended)
        return Progress(
            phase=self._phase,
            run=self.id,
            dataset=self.dataset,
            life=self._record.life,
            total=total,
            fed=self._fed,
            counts=counts,
            running=min(open_rows, self._record.options.concurrency),
            rows_per_s=speed,
            left_s=(total - counts.ended) / speed if speed else None,
            behind=self._behind,
            trouble=self._trouble.now(),
        )

    async def _drive(self) -> RunReport:
        if self.finished_before:
            self._phase = "done"
            return await self._report()
        self._with.life.start()
        self._trouble.start()
        try:
            return await self._guarded(self._live())
        except asyncio.CancelledError:
            raise
        except LifeLost:
            raise  # the run is another's now: no word of ours
        except Exception as error:
            await self._leave_if_possible(str(error))
            raise

    async def _live(self) -> RunReport:
        await self._open()
        telling = asyncio.create_task(self._tell_progress(), name=f"events of {self.id}")
        feeding = asyncio.create_task(self._feed(), name=f"feed {self.id}")
        try:
            state = await self._until_ended(feeding)
        finally:
            for task in (telling, feeding):
                task.cancel()
            await asyncio.wait([telling, feeding])
        self._phase = "writing the sheet"
        await self._sheet.shows_everything(self._with.follower.counts(), self._note_behind)
        await self._events.write(
            "failed" if state == "stopped" else "completed",
            self._with.follower.counts(),
            self._wall_s(),
        )
        if state == "finished":
            await self._with.life.write(state=state)
        await self._with.life.stop()
        self._phase = "done"
        return await self._report()

    async def _open(self) -> None:
        with_ = self._with
        if self.resumed:
            await self._events.read_older(with_.settings)
        await self._events.write("started", self._before, 0)
        providers = {provider.id: provider for provider in self._record.providers}
        await ensure_lanes(with_.lanes, self._record.tools, providers, with_.settings.partitions)
        await with_.life.write(state="open")

    async def _feed(self) -> None:
        self._phase = "feeding"
        source = self._with.source
        feeder = Feeder(
            writer=self._with.writer,
            run=self.id,
            life=self._record.life,
            dataset=self.dataset,
            row_bytes_max=self._with.settings.row_bytes_max,
            on_fed=self._note_fed,
        )
        await feeder.feed(source.pages(), source.digests)
        await self._with.life.write(sealed_total=source.total)
        self._phase = "running"

    def _note_behind(self, records: int) -> None:
        self._behind = records

    def _note_fed(self, rows: int) -> None:
        self._fed = rows

    async def _until_ended(self, feeding: asyncio.Task[None]) -> RunState:
        """Wait until every row has an ending, or a failed one stops the run."""
        follower, total = self._with.follower, self._with.source.total
        stops = self._record.options.on_row_error == "fail"
        while True:
            counts = follower.counts()
            if stops and counts.failed > self._before.failed:
                await self._stop_early(feeding)
                return "stopped" if follower.counts().ended < total else "finished"
            if feeding.done():
                feeding.result()
                if counts.ended >= total:
                    self._check_sum(counts, total)
                    return "finished"
            self._look_around()
            await self._next_change(feeding)

    def _look_around(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        for check in self._checks:
            check()

    async def _next_change(self, feeding: asyncio.Task[None]) -> None:
        changed = self._with.follower.changed
        waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(changed.wait())}
        if not feeding.done():
            waits.add(feeding)
        await asyncio.wait(waits, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        waits.discard(feeding)
        for wait in waits:
            wait.cancel()
        changed.clear()

    async def _stop_early(self, feeding: asyncio.Task[None]) -> None:
        """D3: admit no more rows; those admitted run to their end."""
        self._phase = "ending"
        feeding.cancel()
        await asyncio.wait([feeding])
        await self._with.life.write(state="stopped", reason="a row failed (--on-row-error fail)")
        changed = self._with.follower.changed
        until_s = time.monotonic() + QUIET_S_MAX
        while time.monotonic() < until_s:
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), QUIET_S)
            except TimeoutError:
                return

    def _check_sum(self, counts: Counts, total: int) -> None:
        missing = self._with.follower.missing(total)
        if counts.ended > total or missing:
            named = ", ".join(f"{index + 1:,}" for index in missing) or "none"
            raise RowsUnaccounted(
                f"Run {self.id}: {counts.ended:,} endings for {total:,} rows; rows without one: "
                f"{named}. This is a fault in Rowmill; the sheet holds what was finished."
            )

    async def _tell_progress(self) -> None:
        told = -1
        while True:
            await asyncio.sleep(EVENT_EVERY_S)
            counts = self._with.follower.counts()
            self._speed.note(time.monotonic(), counts.ended)
            if counts.ended != told:
                await self._events.write("progress", counts, self._wall_s())
                told = counts.ended

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; the death of a reader or the loss of our life ends it."""
        task = asyncio.create_task(work)
        alarms: list[asyncio.Future[None]] = [
            self._with.life.lost,
            self._with.follower.reader.failed,
            self._with.runs.reader.failed,
        ]
        waits: list[asyncio.Future[Any]] = [task, *alarms]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        for alarm in alarms:
            if alarm.done():
                alarm.result()
        return task.result()

    async def _leave(self, state: RunState, reason: str) -> None:
        """Write our last word, bounded in time. Raises: InfrastructureError."""
        life = self._with.life
        if life.record.state in ("finished", "stopped"):
            return
        await life.stop()
        try:
            await asyncio.wait_for(self._last_word(state, reason), LEAVE_S)
        except TimeoutError as error:
            raise InfrastructureError(
                f"Kafka at {self._with.settings.bootstrap} did not take the word that run "
                f"{self.id} is {state}. Its rows may still be worked off; resume or watch it: "
                f"rowmill runs show {self.id}."
            ) from error

    async def _last_word(self, state: RunState, reason: str) -> None:
        await self._with.life.write(state=state, reason=reason)
        if state == "paused":
            await self._events.write("paused", self._with.follower.counts(), self._wall_s())

    async def _leave_if_possible(self, reason: str) -> None:
        try:
            await self._leave("paused", reason)
        except InfrastructureError as error:
            log.warning("run_not_paused", run=self.id, reason=str(error))

    async def _report(self) -> RunReport:
        counts = self._with.follower.counts()
        return report(
            run_id=self.id,
            dataset=self.dataset,
            state=self._with.life.record.state,
            total=self._with.source.total,
            counts=counts,
            before=self._before,
            life=self._record.life,
            wall_s=self._wall_s(),
            sheet=self._sheet.shown,
            failures=await self._sheet.failures(counts),
        )

    def _wall_s(self) -> float:
        return time.monotonic() - self._began_s
