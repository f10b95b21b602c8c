"""What keeps a run from going on: a broker that is away, a role that nobody serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rowmill.client.workers import ASK_EVERY_S, Workers
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord, end_offsets
from rowmill.topics.catalogue import RUNS_EVENTS
from rowmill.topics.codec import UndecodableRecord, decode_kind
from rowmill.topics.contracts import Contract, RunHalted, RunRecord, RunUnserved

KINDS: Mapping[str, type[Contract]] = {"unserved": RunUnserved, "halted": RunHalted}

AWAY_S = 5.0
"""A broker that did not answer a fetch for this long is called away: idle ones answer in 0.25 s."""


class Trouble:
    """Looks every few seconds; `now` says in words what is wrong.

    `halted`: why calls of this life may not start any more, "" where they may.
    """

    def __init__(self, settings: Settings, reader: LogReader, record: RunRecord) -> None:
        self._settings = settings
        self._life = (record.run, record.life)
        self._unserved = ""
        self.halted = ""
        self._notes: LogReader | None = None
        self._bootstrap = settings.bootstrap
        self._reader = reader
        self._workers = Workers(settings)
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Hear what workers say of this life from now on, and begin to look."""
        begin = await end_offsets(self._settings, RUNS_EVENTS)
        self._notes = LogReader(self._settings, RUNS_EVENTS, self._note, from_offsets=begin)
        await self._notes.start()
        self._looking = asyncio.create_task(self._look(), name="look for workers")

    async def stop(self) -> None:
        """Stop looking. Idempotent."""
        task, self._looking = self._looking, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            await self._workers.stop()
        notes, self._notes = self._notes, None
        if notes is not None:
            await notes.stop()

    def now(self) -> str:
        """Return what is wrong, "" where nothing is known to be."""
        silent_s = self._reader.silent_s()
        if silent_s >= AWAY_S:
            return f"Kafka at {self._bootstrap} away for {silent_s:.0f} s"
        absent = self._workers.absent()
        return ", ".join(f"no {role} worker: {since_s:.0f} s" for role, since_s in absent.items())

    @property
    def unserved(self) -> str:
        """Return why a worker leaves this run's rows alone, "" where none said so.

        Another worker may serve them: it matters only while no row ends.
        """
        return self._unserved

    def _note(self, record: LogRecord) -> None:
        try:
            note = decode_kind(KINDS, "", record.value)
        except UndecodableRecord:
            return  # another event of another contract
        match note:
            case RunUnserved() if (note.run, note.life) == self._life:
                self._unserved = note.reason
            case RunHalted() if (note.run, note.life) == self._life:
                self.halted = note.reason

    async def _look(self) -> None:
        while True:
            await self._workers.look()
            await asyncio.sleep(ASK_EVERY_S)
