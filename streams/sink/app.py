"""The sink role, wired: finished rows in, chunks into the sheets they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from faust.types import TP

from rowmill.settings import Settings
from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.adapters.history import history_of
from rowmill.streams.adapters.log_reader import LogReader, LogRecord, cluster_id
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.adapters.sheet.url import normal_url
from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.streams.engine.app import RoleApp, role_app, run
from rowmill.streams.engine.dead_letter import set_aside
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.ports import SheetUnusable, Source
from rowmill.streams.sink import agents
from rowmill.streams.sink.flush import Limits, SheetFlush
from rowmill.streams.sink.intake import Intake
from rowmill.streams.sink.sheets import Sheets
from rowmill.streams.sink.writer_thread import WriterThread
from rowmill.topics.catalogue import ROWS_COMPLETED, RUNS
from rowmill.topics.contracts import RunRecord
from rowmill.topics.views import RunsView

log = structlog.get_logger(__name__)

GATHER_MS = 50
GATHER_BYTES = 256 << 10
"""Rows wait for their chunk to fill anyway; gathered at the broker they cost fewer fetches."""


class Sink:
    """One sink process."""

    def __init__(self, settings: Settings, app: RoleApp) -> None:
        self._settings = settings
        self._app = app
        self._clock = SystemClock()
        self._runs = RunsView()
        self._source = Source("", "")
        self._reads_from: dict[int, int] = {}
        self._started = False
        self._reader: LogReader | None = None
        self._sheets: Sheets | None = None
        self._intake = Intake(
            pause=lambda partition: app.pause(ROWS_COMPLETED, partition),
            resume=lambda partition: app.resume(ROWS_COMPLETED, partition),
            set_aside=self._set_aside,
            secrets=app.secrets,
        )
        app.fetch_wait_ms, app.fetch_min_bytes = GATHER_MS, GATHER_BYTES
        agents.attach(app, self._intake)
        app.before_start.append(self._start)
        app.on_partitions_ready.append(self._ready)
        app.on_partitions_lost.append(self._lost)
        app.after_stop.append(self._stop)
        app.start_at = lambda _topic, partition: self._reads_from.get(partition)
        app.head_is_waiting = self._is_waiting

    async def _start(self) -> None:
        """Know the runs and how far their sheets are, before the first record."""
        self._source = Source(
            reader=f"{self._app.conf.id}@{await cluster_id(self._settings)}",
            topic=self._app.wire_name(ROWS_COMPLETED),
        )
        self._sheets = Sheets(
            self._runs, self._source, self._make_flush, normal_url, self._settings.sheet_url
        )
        self._intake.connect(self._sheets)
        self._reader = LogReader(self._settings, RUNS, self._on_run)
        await self._reader.start()
        await self._reader.caught_up()
        self._reader.failed.add_done_callback(self._on_reader_failed)
        for record in self._runs.all():
            if self._may_have_rows(record):
                self._sheets.of_run(record.run)
        await self._sheets.open_all()
        self._started = True

    async def _stop(self) -> None:
        if self._sheets is not None:
            await self._sheets.close()
        if self._reader is not None:
            await self._reader.stop()

    async def _ready(self, partitions: set[int]) -> None:
        """Decide where reading begins: at the commit, or below it where a sheet wants it so.

        The commit lies below all that is not acknowledged: rows of sheets that can't be opened and
        dead letters on their way. A sheet's `next` lies below what the sheet does not hold. What
        lies above one of them and was written before is dropped by the sheet it belongs to.
        """
        assert self._sheets is not None
        tps = {TP(self._source.topic, partition) for partition in partitions}
        found = await self._app.role_consumer.thread.offsets_of(tps)
        wanted: dict[int, int] = {}
        for tp in sorted(tps):
            beginning, end = found.beginning[tp], found.end[tp]
            highest, sheet = self._sheets.highest(tp.partition)
            if highest > end:
                raise SheetUnusable(
                    f"Sheet {sheet} is at offset {highest} of {tp.topic}/{tp.partition}, which ends "
                    f"at {end}: the topic was made anew. Use another sheet, or remove the topic's "
                    "lines from the table _rowmill_offsets and let the sink read it again."
                )
            commit = found.committed.get(tp, beginning)
            next_ = self._sheets.wanted(tp.partition)
            wanted[tp.partition] = commit if next_ is None else min(commit, next_)
            self._reads_from[tp.partition] = max(wanted[tp.partition], beginning)
        self._intake.begin(self._reads_from)
        self._sheets.begin(wanted)

    async def _lost(self, partitions: set[int]) -> None:
        assert self._sheets is not None
        await self._sheets.give_up(partitions)
        self._intake.forget(partitions)
        for partition in partitions:
            self._reads_from.pop(partition, None)

    def _on_run(self, record: LogRecord) -> None:
        run_record = self._runs.apply(record.key, record.value, record.offset)
        if run_record is not None and self._started and self._sheets is not None:
            self._sheets.note_run(run_record)
            self._intake.runs_changed()

    def _on_reader_failed(self, failed: asyncio.Future[None]) -> None:
        error = None if failed.cancelled() else failed.exception()
        if error is not None:
            self._app.fail(error)

    def _may_have_rows(self, record: RunRecord) -> bool:
        """False for a run so old that none of its rows is left in the topic."""
        kept_ms = ROWS_COMPLETED.retention_ms
        return kept_ms is None or self._clock.wall_ms() - record.updated_at_ms < kept_ms

    def _make_flush(self, url: str) -> SheetFlush:
        settings = self._settings
        return SheetFlush(
            url,
            self._source,
            WriterThread(url, SqliteSheet),
            Limits(settings.chunk_rows, settings.chunk_bytes, settings.chunk_linger_ms),
            self._clock,
            positions=self._intake.positions,
            set_aside=self._set_aside,
            on_pressure=self._intake.note_pressure,
            fail=self._app.fail,
            note=self._app.note,
        )

    def _set_aside(self, delivery: Delivery, reason: str) -> None:
        set_aside(self._app, delivery, reason)

    def _is_waiting(self, head: Delivery) -> bool:
        """True where the head of a partition waits for a run's record or an unwritable sheet."""
        if self._sheets is not None and any(f.is_stuck for f in self._sheets.all()):
            return True
        return self._intake.holds(head)


def main(
    settings: Settings, store: Path, on_ready: Callable[[], None], play_folders: Sequence[Path]
) -> int:
    """Run one sink worker until it is told to stop. Returns: the exit code.

    The sink needs no play code: columns come with the `runs` record.
    """
    del play_folders
    note = history_of(settings, "sink")
    app = role_app("sink", settings, store=store, secrets=EnvironmentSecrets(), note=note)
    Sink(settings, app)
    return run(app, on_ready=on_ready)
