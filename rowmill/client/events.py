"""A dataset's events (E1): one start and one end per run, over all its lives."""

from __future__ import annotations

from typing import Literal

import msgspec

from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.adapters.log_writer import LogWriter
from rowmill.streams.core.accounting import Counts
from rowmill.streams.ports import Clock
from rowmill.topics.catalogue import RUNS_EVENTS
from rowmill.topics.codec import encode, headers
from rowmill.topics.contracts import DatasetEvent, RunRecord

Kind = Literal["started", "progress", "completed", "failed", "paused"]
ONCE = ("started", "completed", "failed")
ENDS = ("completed", "failed")


class _Kind(msgspec.Struct):
    kind: str


_decode = msgspec.json.Decoder(_Kind).decode


class Events:
    """Writes the events of one run. `written`: kinds that older lives have written."""

    def __init__(self, writer: LogWriter, record: RunRecord, clock: Clock) -> None:
        self._writer = writer
        self._record = record
        self._clock = clock
        self._written: set[str] = set()

    async def read_older(self, settings: Settings) -> None:
        """Learn what older lives of the run have written. Raises: LogUnreadable."""
        run = self._record.run

        def note(record: LogRecord) -> None:
            if record.key != run or record.value is None:
                return
            try:
                self._written.add(_decode(record.value).kind)
            except (msgspec.DecodeError, msgspec.ValidationError):
                return  # somebody else's record under our key tells nothing

        await LogReader(settings, RUNS_EVENTS, note).read_once()

    async def write(self, kind: Kind, counts: Counts, wall_s: float) -> None:
        """Write an event; a start or an end that was written before is not repeated.

        Raises: LogUnwritable.
        """
        if kind in ENDS and any(end in self._written for end in ENDS):
            return
        if kind in ONCE and kind in self._written:
            return
        run, life = self._record.run, self._record.life
        event = DatasetEvent(
            kind=kind,
            run=run,
            life=life,
            dataset=self._record.dataset,
            at_ms=self._clock.wall_ms(),
            counts=counts.to_json(),
            wall_s=round(wall_s, 3),
        )
        # The same id for every life's start and end: a reader can tell a repetition even then.
        id_ = f"{run}/{kind}" if kind in ONCE else f"{run}/{life}/{kind}/{event.at_ms}"
        found = headers(event, id_=id_, source=f"rowmill/run/{run}", run=run)
        await self._writer.write(RUNS_EVENTS, run, encode(event), headers=found)
        self._written.add(kind)
