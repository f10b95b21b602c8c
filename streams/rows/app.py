"""The rows role, wired: admission, columns, entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rowmill.settings import Settings
from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.adapters.history import history_of
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.core.admission import Admission
from rowmill.streams.engine.app import RoleApp, role_app, run
from rowmill.streams.rows import agents
from rowmill.streams.rows.asks import Asks
from rowmill.streams.rows.entries import RowEntries, derive_counts
from rowmill.streams.rows.intake import Intake, Waiting
from rowmill.streams.rows.open_rows import OpenRows
from rowmill.streams.rows.plays import PlayShelf
from rowmill.streams.rows.runner import RowRunner
from rowmill.topics.catalogue import LANES, ROWS_CHANGELOG, RUNS
from rowmill.topics.views import LanesView, RunsView


class Rows:
    """One rows process."""

    def __init__(self, settings: Settings, app: RoleApp, play_folders: Sequence[Path]) -> None:
        self._settings = settings
        self._runs = RunsView()
        self._lanes = LanesView(settings.partitions)
        self._readers: list[LogReader] = []
        self._owned: set[int] = set()
        shelf = PlayShelf(play_folders)
        table = app.durable_table(
            "rows",
            ROWS_CHANGELOG,
            derive=derive_counts,
            refresh=lambda partition, key, value: self._entries.refreshed(partition, key, value),
        )
        self._entries = RowEntries(table, app.epoch)
        self._asks = Asks(app, self._lanes.get, settings.ask_again_s)
        admission: Admission[Waiting] = Admission(settings.row_max, settings.read_ahead_bytes)
        clock = SystemClock()
        secrets = app.secrets
        runner = RowRunner(self._asks, shelf, settings, clock, secrets, app.note)
        self._open = OpenRows(app, settings, shelf, runner, self._entries, admission, secrets)
        self._intake = Intake(
            app,
            self._runs,
            shelf,
            admission,
            clock,
            secrets,
            partitions=settings.partitions,
            owned=lambda: len(self._owned),
            admit=self._open.admit,
        )
        intake = self._intake
        self._open.connect(intake.pump, intake.failed, intake.halted, intake.offer_again)
        self._asks.connect(self._open.withhold)
        agents.attach(app, self._intake, self._asks)
        app.on_partitions_ready.append(self._ready)
        app.on_partitions_lost.append(self._lost)
        app.head_is_waiting = lambda head: self._open.works_on(head) or self._intake.holds(head)
        app.before_start.append(self._start)
        app.after_stop.append(self._stop)

    async def _start(self) -> None:
        self._readers = [
            LogReader(self._settings, RUNS, self._on_run),
            LogReader(self._settings, LANES, self._on_lane),
        ]
        for reader in self._readers:
            await reader.start()
            await reader.caught_up()

    async def _stop(self) -> None:
        for reader in self._readers:
            await reader.stop()

    def _on_run(self, record: LogRecord) -> None:
        run = self._runs.apply(record.key, record.value, record.offset)
        if run is not None:
            self._open.run_changed(run)
            self._intake.run_changed(run)

    def _on_lane(self, record: LogRecord) -> None:
        if self._lanes.apply(record.key, record.value, record.offset) is not None:
            self._asks.lane_changed()

    async def _ready(self, partitions: set[int]) -> None:
        self._owned |= partitions
        self._intake.ready()

    async def _lost(self, partitions: set[int]) -> None:
        self._owned -= partitions
        self._open.lost(partitions)
        self._intake.lost(partitions)
        self._entries.forget(partitions)


def main(
    settings: Settings, store: Path, on_ready: Callable[[], None], play_folders: Sequence[Path]
) -> int:
    """Run one rows worker until it is told to stop. Returns: the exit code.

    `play_folders`: plays are loaded from files below these only.
    """
    secrets = EnvironmentSecrets()
    app = role_app(
        "rows",
        settings,
        store=store,
        standbys=settings.standbys,
        secrets=secrets,
        note=history_of(settings, "rows"),
    )
    Rows(settings, app, play_folders)
    return run(app, on_ready=on_ready)
