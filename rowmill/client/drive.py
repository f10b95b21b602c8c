"""One life of a run, from open to finished: feed, follow, wait for the sheet, leave a word."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rowmill.client.claims import Life, RunLock
from rowmill.client.events import Events, Kind
from rowmill.client.feed import Feeder
from rowmill.client.follow import Follower
from rowmill.client.lanes import ensure_lanes
from rowmill.client.progress import Phase, Speed
from rowmill.client.sheet import SheetView
from rowmill.client.source import Source
from rowmill.client.viewed_log import ViewedLog
from rowmill.errors import InfrastructureError
from rowmill.settings import Settings
from rowmill.streams.adapters.history import history_of
from rowmill.streams.adapters.log_writer import LogWriter
from rowmill.streams.core.accounting import Counts
from rowmill.streams.ports import Clock
from rowmill.topics.contracts import RunRecord
from rowmill.topics.contracts.runs import RunState
from rowmill.topics.views import LanesView, RunsView

LOOK_EVERY_S = 0.25
"""How often a main looks whether something is wrong while no row ends."""

EVENT_EVERY_S = 1.0
"""At most one progress event in this time."""

QUIET_S = 3.0
QUIET_S_MAX = 60.0
"""After a stop, admitted rows run to their end: nothing ended for QUIET_S says they have. One that
takes longer than QUIET_S_MAX is told as pending; its outcome still reaches the sheet."""


class RowsUnaccounted(InfrastructureError):
    """The counts do not add up to the input: something in the workers is broken."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a life is driven with. `previous`: the record it follows, None for a new run."""

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


class Drive:
    """The work of one life. Its attributes may be read at any time, for the progress.

    `halted` is asked why calls may not start any more. `before`: the run's counts when this life
    began. `fed`: rows durable in Kafka. `behind`: records that the sheet lacks at the end. `moved_s`:
    when (monotonic) a row ended last.
    """

    def __init__(self, means: Means, sheet: SheetView) -> None:
        self._means = means
        self._record = means.life.record
        self._sheet = sheet
        self._events = Events(means.writer, self._record, means.clock)
        self._began_s = time.monotonic()
        self._looked_s = 0.0
        self.checks: list[Callable[[], None]] = []
        self.halted: Callable[[], str] = lambda: ""
        self.before = means.follower.counts()
        self._retried_before = means.follower.endings.retried
        self.phase: Phase = "starting"
        self.speed = Speed()
        self.fed = 0
        self.behind = 0
        self.moved_s = self._began_s

    @property
    def counts(self) -> Counts:
        """The run's counts over all lives, as far as read."""
        return self._means.follower.counts()

    @property
    def ended(self) -> int:
        """Rows that this command is done with: those that run again are not, although they failed."""
        return self.counts.ended - self._means.follower.endings.retried

    @property
    def retried(self) -> int:
        """Failed rows that ran again in this life."""
        return self._retried_before - self._means.follower.endings.retried

    @property
    def wall_s(self) -> float:
        """Seconds since this life began."""
        return time.monotonic() - self._began_s

    async def to_the_end(self) -> None:
        """Drive until every row has an ending and the sheet shows it, or a failed row stops it.

        Raises: RowsUnaccounted, SheetBehind, LogUnwritable, LifeLost, what a check raises.
        """
        await self._open()
        telling = asyncio.create_task(self._tell_progress(), name=f"events of {self._record.run}")
        feeding = asyncio.create_task(self._feed(), name=f"feed {self._record.run}")
        try:
            state = await self._until_ended(feeding)
        finally:
            for task in (telling, feeding):
                task.cancel()
            await asyncio.wait([telling, feeding])
        self.phase = "writing the sheet"
        stopped = state == "stopped"
        await self._sheet.shows_everything(self.counts, self._note_behind, growing=stopped)
        end: Kind = "failed" if state == "stopped" else "completed"
        await self._events.write(end, self.counts, self.wall_s)
        if state == "finished":
            await self._means.life.write(state=state)
        await self._means.life.stop()
        self.phase = "done"

    async def pause(self, reason: str) -> None:
        """Say in `runs` that this life is over. Raises: LogUnwritable, LifeLost."""
        await self._means.life.write(state="paused", reason=reason)
        await self._events.write("paused", self.counts, self.wall_s)

    async def _open(self) -> None:
        means = self._means
        if means.previous is not None:
            await self._events.read_older(means.settings)
        await self._events.write("started", self.before, 0)
        providers = {provider.id: provider for provider in self._record.providers}
        await ensure_lanes(means.lanes, self._record.tools, providers, means.settings.partitions)
        await means.life.write(state="open")

    async def _feed(self) -> None:
        self.phase = "feeding"
        source = self._means.source
        feeder = Feeder(
            writer=self._means.writer,
            run=self._record.run,
            life=self._record.life,
            dataset=self._record.dataset,
            row_bytes_max=self._means.settings.row_bytes_max,
            on_fed=self._note_fed,
            note=history_of(self._means.settings, "main"),
        )
        await feeder.feed(source.pages(), source.digests)
        await self._means.life.write(sealed_total=source.total)
        self.phase = "running"

    def _note_fed(self, rows: int) -> None:
        self.fed = rows

    def _note_behind(self, records: int) -> None:
        self.behind = records

    async def _until_ended(self, feeding: asyncio.Task[None]) -> RunState:
        """Wait until every row has an ending, or a failed one stops the run."""
        total = self._means.source.total
        stops = self._record.options.on_row_error == "fail"
        while True:
            reason = self._why_stop(stops)
            if reason:
                await self._stop_early(feeding, reason)
                return "stopped" if self.ended < total else "finished"
            if feeding.done():
                feeding.result()
                if self.ended >= total:
                    self._check_sum(self.counts, total)
                    return "finished"
            self._look_around()
            await self._next_change(feeding)

    def _why_stop(self, stops: bool) -> str:
        if stops and self._means.follower.endings.failed:
            return "a row failed (--on-row-error fail)"
        return self.halted()

    def _look_around(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        for check in self.checks:
            check()

    async def _next_change(self, feeding: asyncio.Task[None]) -> None:
        changed = self._means.follower.changed
        change = asyncio.ensure_future(changed.wait())
        waits: set[asyncio.Future[Any]] = {change}
        if not feeding.done():
            waits.add(feeding)
        await asyncio.wait(waits, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        change.cancel()
        changed.clear()

    async def _stop_early(self, feeding: asyncio.Task[None], reason: str) -> None:
        """D3: admit no more rows; those admitted run to their end."""
        self.phase = "ending"
        feeding.cancel()
        await asyncio.wait([feeding])
        await self._means.life.write(state="stopped", reason=reason)
        changed = self._means.follower.changed
        until_s = time.monotonic() + QUIET_S_MAX
        while time.monotonic() < until_s:
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), QUIET_S)
            except TimeoutError:
                return

    def _check_sum(self, counts: Counts, total: int) -> None:
        missing = self._means.follower.endings.missing(total)
        if counts.ended > total or missing:
            named = ", ".join(f"{index + 1:,}" for index in missing) or "none"
            raise RowsUnaccounted(
                f"Run {self._record.run}: {counts.ended:,} endings for {total:,} rows; rows without "
                f"one: {named}. This is a fault in Rowmill; the sheet holds what was finished."
            )

    async def _tell_progress(self) -> None:
        told = -1
        while True:
            await asyncio.sleep(EVENT_EVERY_S)
            ended = self.ended
            self.speed.note(time.monotonic(), ended)
            if ended != told:
                self.moved_s = time.monotonic()
                await self._events.write("progress", self.counts, self.wall_s)
                told = ended
