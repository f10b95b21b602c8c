"""The connection of one process: the logs that it follows, the producer that it writes with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rowmill.client.claims import Life, RunLock, claim
from rowmill.client.drive import Means
from rowmill.client.follow import Follower
from rowmill.client.instance import instance_id
from rowmill.client.lanes import limited_later
from rowmill.client.look import look_at_runs
from rowmill.client.run import Run
from rowmill.client.source import Source
from rowmill.client.viewed_log import ViewedLog
from rowmill.client.work import Work, checked_run_id, identified, new_run_id, plain_rows
from rowmill.errors import UsageError
from rowmill.plays.loading import LoadedPlay
from rowmill.settings import Settings
from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.adapters.log_reader import end_offsets
from rowmill.streams.adapters.log_writer import LogWriter
from rowmill.streams.core.commands import Command, next_command
from rowmill.topics.catalogue import LANES, ROWS_CHANGELOG, RUNS
from rowmill.topics.contracts import RunOptions, RunRecord
from rowmill.topics.views import LanesView, RunsView

Note = Callable[[str], None]


class Mill:
    """Starts and follows runs. Made by `connect`."""

    def __init__(
        self, settings: Settings, writer: LogWriter, runs: ViewedLog[RunsView],
        lanes: ViewedLog[LanesView],
    ) -> None:  # fmt: skip
        self.settings = settings
        self.writer = writer
        self.runs = runs
        self.lanes = lanes
        self.clock = SystemClock()

    async def start(
        self,
        play: LoadedPlay,
        rows: Iterable[Mapping[str, Any]],
        *,
        run_id: str | None = None,
        options: RunOptions | None = None,
        note: Note = lambda line: None,
    ) -> Run:
        """Run a play over rows from code: mappings of str to JSON values.

        An iterator is read into memory first, since rows are read twice. Otherwise as `begin`.
        """
        plain = plain_rows(rows)
        first = next(iter(plain()), None)
        columns = list(first.values) if first is not None else []
        play.check_input(columns)
        source = await asyncio.to_thread(Source.read, lambda: identified(play.dataset, plain()))
        work = Work.of(play, columns, options or RunOptions())
        return await self.begin(work, source, run_id=run_id, note=note)

    async def begin(
        self,
        work: Work,
        source: Source,
        *,
        run_id: str | None = None,
        note: Note = lambda line: None,
    ) -> Run:
        """Claim a run and begin to drive it; the same run id resumes.

        Returns at once: `done()` waits for the end. `note` is told what a user should know.
        Raises: RunDriven, InputDiffers, UsageError (nothing was called); InfrastructureError.
        """
        run = checked_run_id(run_id) if run_id is not None else new_run_id()
        lock = RunLock(self.settings.home, run)
        lock.take()
        try:
            claimed = await self._claimed(work, source, run, lock, note)
        except BaseException:
            lock.release()
            raise
        claimed.begin()
        return claimed

    async def _tell_of_lanes(self, work: Work, note: Note) -> None:
        """Say where limits hold for each dispatch worker instead of for all of them together."""
        await self.lanes.read_on()
        providers = {provider.id: provider for provider in work.providers}
        for tool in limited_later(self.lanes.view, work.tools, providers):
            note(
                f"{tool} was first used without limits, so its answers lie in several partitions: each "
                "dispatch worker keeps its limits by itself. Run one dispatch worker, or give each "
                "its part of the limit."
            )

    async def _claimed(
        self, work: Work, source: Source, run: str, lock: RunLock, note: Note
    ) -> Run:
        await self.runs.read_on()
        held = self.runs.view.get(run)
        if held is not None:
            _compare(work, source, held, note)
        again = await self._runs_again(work, held)
        await self._tell_of_lanes(work, note)
        # Taken before the claim: no row of a new run can have ended below these.
        begin = await end_offsets(self.settings, ROWS_CHANGELOG) if held is None else None
        instance = instance_id(self.settings.home)

        def draft(held: RunRecord | None) -> RunRecord:
            return self._draft(work, source, run, instance, held)

        def on_watch(held: RunRecord) -> None:
            note(
                f"run {run} was driven by pid {held.pid} on another machine; "
                "watching for 20 s whether it still is"
            )

        record, previous = await claim(
            self.runs,
            run,
            instance=instance,
            clock=self.clock,
            draft=draft,
            on_watch=on_watch,
            again=again,
        )
        begin = begin if previous is None else None
        follower = Follower(self.settings, record, from_offsets=begin)
        await follower.start()
        return Run(
            Means(
                settings=self.settings,
                writer=self.writer,
                runs=self.runs,
                lanes=self.lanes,
                clock=self.clock,
                source=source,
                life=Life(self.runs, record, self.clock),
                follower=follower,
                lock=lock,
                previous=previous,
            )
        )

    async def _runs_again(self, work: Work, held: RunRecord | None) -> bool:
        """Say whether a finished run has rows for this command. Raises: UsageError."""
        if held is None or held.state != "finished" or work.options.force is None:
            return False
        if work.options.force == "all":
            raise UsageError(
                f"Run {held.run} has finished, and a finished row never changes in its run. To ask "
                "everything again, start a new run: leave --run-id out. To run only its failed rows "
                "again: --retry-failed. Nothing was called."
            )
        (look,) = await look_at_runs(self.settings, held.run)
        return look.counts.failed > 0

    def _draft(
        self, work: Work, source: Source, run: str, instance: str, held: RunRecord | None
    ) -> RunRecord:
        now_ms = self.clock.wall_ms()
        return RunRecord(
            run=run,
            number=held.number if held else -1,
            life=1,
            claim="",
            instance=instance,
            pid=os.getpid(),
            state="claiming",
            started_at_ms=held.started_at_ms if held else now_ms,
            updated_at_ms=now_ms,
            dataset=work.dataset,
            input_columns=list(work.input_columns),
            output_columns=list(work.output_columns),
            play=work.play,
            options=_options(work.options, held),
            providers=list(work.providers),
            tools=list(work.tools),
            sealed_total=held.sealed_total if held else None,
            input_digests=list(source.digests),
        )


def _options(wanted: RunOptions, held: RunRecord | None) -> RunOptions:
    """Return the options of the next life: those given now, with the command they belong to."""
    former = None if held is None else Command(held.options.force, held.options.command)
    command = next_command(wanted.force, former, "" if held is None else held.state)
    update: dict[str, Any] = {"force": command.force, "command": command.number}
    if held is not None:
        # A limit holds for the run: only another limit lifts it.
        for limit in ("max_calls", "budget"):
            given = getattr(wanted, limit)
            update[limit] = getattr(held.options, limit) if given is None else given
    return wanted.model_copy(update=update)


def _compare(work: Work, source: Source, held: RunRecord, note: Note) -> None:
    """Compare a run that stands with what it is resumed with. Raises: UsageError."""
    if held.dataset != work.dataset:
        raise UsageError(
            f'Run {held.run} is of dataset "{held.dataset}", this play has "{work.dataset}". '
            "Use another run id. Nothing was called."
        )
    source.compare(held.run, held.input_digests, held.sealed_total)
    if held.play.digest != work.play.digest:
        note(
            f"the play has changed since run {held.run} began: rows that ended keep their outputs, "
            "the others run with the new one"
        )


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Mill]:
    """Connect to the cluster that the settings name; it runs, and its topics exist.

    Raises: LogUnreadable, LogUnwritable where it does not.
    """
    async with AsyncExitStack() as stack:
        writer = LogWriter(settings, client_id="rowmill-client")
        await writer.start()
        stack.push_async_callback(_stopped_soon, writer)
        runs = ViewedLog(settings, RUNS, RunsView(), writer)
        await runs.start()
        stack.push_async_callback(runs.stop)
        lanes = ViewedLog(settings, LANES, LanesView(settings.partitions), writer)
        await lanes.start()
        stack.push_async_callback(lanes.stop)
        yield Mill(settings, writer, runs, lanes)


STOP_S = 5.0
"""A producer that can't deliver what it holds, the broker being away, is left after this."""


async def _stopped_soon(writer: LogWriter) -> None:
    try:
        await asyncio.wait_for(writer.stop(), STOP_S)
    except TimeoutError:
        return
