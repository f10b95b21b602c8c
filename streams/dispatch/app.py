"""The dispatch role, wired: receipts, leases, lanes and the HTTP call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex

from rowmill.settings import Settings
from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.adapters.history import history_of
from rowmill.streams.adapters.http import HttpProvider
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.dispatch import agents
from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.caller import Caller
from rowmill.streams.dispatch.claims import Claims
from rowmill.streams.dispatch.expiry import Expiry
from rowmill.streams.dispatch.lanes import Lanes
from rowmill.streams.dispatch.limits import LimitStore, RunLimits
from rowmill.streams.dispatch.notes import CallNotes
from rowmill.streams.dispatch.owner import OwnerMail, Ownership, ReceiptStore
from rowmill.streams.dispatch.permits import Means, PacingStore
from rowmill.streams.dispatch.requests import Requests
from rowmill.streams.engine.app import RoleApp, role_app, run
from rowmill.streams.ports import Clock, Provider
from rowmill.topics.catalogue import (
    DAY_MS,
    LIMITS_CHANGELOG,
    PACING_CHANGELOG,
    RECEIPTS_CHANGELOG,
    RUNS,
)
from rowmill.topics.views import RunsView


def _new_id() -> str:
    return token_hex(8)


class Dispatch:
    """One dispatch process. `requests` is fed with what `tool.requests` brings."""

    def __init__(
        self,
        settings: Settings,
        app: RoleApp,
        *,
        provider: Provider,
        clock: Clock,
        new_id: Callable[[], str],
        chance: Callable[[], float],
    ) -> None:
        """`new_id` makes random ids, `chance` random numbers in [0, 1)."""
        self._settings = settings
        self._app = app
        self._clock = clock
        self._provider = provider
        self._recovered_ms: dict[int, int] = {}
        ownership = Ownership(
            app.instance,
            app.epoch,
            app.owns,
            lambda: app.surely_member,
            self._recovered_ms.__getitem__,
        )
        self._mail, notes = OwnerMail(app), CallNotes(app.note)
        mail, bytes_max = self._mail, settings.receipt_bytes_max
        store = ReceiptStore(app.durable_table("receipts", RECEIPTS_CHANGELOG), ownership)
        self._caller = Caller(
            store,
            mail,
            provider,
            ownership,
            clock,
            lease_ms=round(settings.lease_s * 1000),
            bytes_max=bytes_max,
            new_id=new_id,
            chance=chance,
            crash=app.fail,
            notes=notes,
        )
        lanes, answers = self._lanes(ownership, new_id), Answers(app)
        self._runs = RunsView()
        self._limits = limits = self._run_limits(ownership)
        self._claims = Claims(
            store, lanes, answers, mail, ownership, clock, new_id, notes, limits, bytes_max
        )
        self._caller.connect(self._claims, lanes)
        ttl_ms = round(settings.receipt_ttl_days * DAY_MS)
        self._expiry = Expiry(store, self._claims, ownership, clock, ttl_ms)
        self._came = asyncio.Event()
        self.requests = Requests(
            app, self._runs, self._claims, answers, mail, limits, partitions=settings.partitions
        )
        self._sweeping: asyncio.Task[None] | None = None
        self._reader: LogReader | None = None
        self._hook_in(app)

    def _lanes(self, ownership: Ownership, new_id: Callable[[], str]) -> Lanes:
        app, mail = self._app, self._mail
        means = Means(
            PacingStore(app.durable_table("pacing", PACING_CHANGELOG), ownership, new_id()),
            ownership,
            self._clock,
            new_id,
            lambda partition: mail.read_past(partition, new_id()),
            app.note,
            app.fail,
        )
        return Lanes(
            self._clock,
            self._caller.send,
            concurrency_default=self._settings.lane_concurrency,
            share=lambda: len(self._recovered_ms) / self._settings.partitions,
            gate=lambda: app.surely_member and not app.stopping,
            means=means,
        )

    def _run_limits(self, ownership: Ownership) -> RunLimits:
        store = LimitStore(self._app.durable_table("limits", LIMITS_CHANGELOG), ownership)
        return RunLimits(self._runs, store, self._mail, ownership, self._settings.partitions)

    def _hook_in(self, app: RoleApp) -> None:
        app.on_partitions_ready.append(self._ready)
        app.on_partitions_lost.append(self._lost)
        app.head_is_waiting = lambda head: self._claims.waits(head) or self.requests.holds(head)
        app.before_start.append(self._start)
        app.before_stop.append(self._drain)
        app.after_stop.append(self._stop)

    async def _start(self) -> None:
        self._reader = LogReader(self._settings, RUNS, self.on_run)
        await self._reader.start()
        await self._reader.caught_up()
        self._sweeping = asyncio.create_task(self.sweep(), name="sweep receipts")
        self._sweeping.add_done_callback(self._swept)

    async def sweep(self) -> None:
        """Delete old receipts now and then, until cancelled."""
        await self._expiry.keep_sweeping(self._recovered_ms.keys(), self._came)

    def _swept(self, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._app.fail(error)

    async def _drain(self) -> None:
        """Let calls in flight end: a planned stop repeats none."""
        await self._caller.drain(self._settings.drain_s)

    async def _stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._reader is not None:
            await self._reader.stop()
        await self._provider.close()

    def on_run(self, record: LogRecord) -> None:
        """Take in a record of the topic `runs`."""
        run = self._runs.apply(record.key, record.value, record.offset)
        if run is not None:
            self._claims.starts.run_changed(run.run, run.life)
            self.requests.run_changed(run)

    async def _ready(self, partitions: set[int]) -> None:
        now = self._clock.monotonic_ms()
        self._recovered_ms.update(dict.fromkeys(partitions, now))
        self._claims.came_back(partitions)
        self._came.set()

    async def _lost(self, partitions: set[int]) -> None:
        self._caller.lost(partitions)
        self._claims.lost(partitions)
        self._mail.lost(partitions)
        self._limits.lost(partitions)
        self.requests.lost(partitions)
        for partition in partitions:
            self._recovered_ms.pop(partition, None)


def main(
    settings: Settings, store: Path, on_ready: Callable[[], None], play_folders: Sequence[Path]
) -> int:
    """Run one dispatch worker until it is told to stop. Returns: the exit code.

    Dispatch needs no play code: tools and providers come with the `runs` record.
    """
    del play_folders
    secrets = EnvironmentSecrets()
    app = role_app(
        "dispatch",
        settings,
        store=store,
        standbys=settings.standbys,
        secrets=secrets,
        note=history_of(settings, "dispatch"),
    )
    dispatch = Dispatch(
        settings,
        app,
        provider=HttpProvider(secrets),
        clock=SystemClock(),
        new_id=_new_id,
        chance=random.random,
    )
    agents.attach(app, dispatch.requests)
    return run(app, on_ready=on_ready)
