"""Feed a run's rows to `rows.input`, page by page: nothing holds the whole input."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.structs import RecordMetadata

from rowmill.errors import InputError, UsageError
from rowmill.streams.adapters.log_writer import LogWriter
from rowmill.streams.core.identity import canonical, refused_row_id
from rowmill.streams.ports import Note, silent
from rowmill.topics.catalogue import ROWS_INPUT
from rowmill.topics.codec import encode, headers
from rowmill.topics.contracts import RowInput

PAGE_ROWS = 1_000
"""Rows of one page, and of one input digest: a difference is named by its page."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One input row as the feeder wants it.

    `row`: its identity (I1). `values`: what the play sees, str to JSON values. `refused`: why the
    row can't run; it is fed all the same, and ends as failed.
    """

    row: str
    values: Mapping[str, Any]
    refused: str | None = None


Pages = AsyncIterator[Sequence[SourceRow]]


class InputDiffers(UsageError):
    """The run is resumed with other rows than it began with. Nothing was called."""

    def __init__(self, run: str, first: int, last: int, why: str = "differ") -> None:
        super().__init__(
            f"The input is not the one that run {run} began with: rows {first:,}-{last:,} {why}. "
            "Resume with the same rows, or start a new run without --run-id. Nothing was called."
        )


class InputChanged(InputError):
    """The input is another than a moment ago, when it was checked."""

    def __init__(self, run: str, first: int, last: int) -> None:
        super().__init__(
            f"The input changed while run {run} was reading it: rows {first:,}-{last:,}. The rows "
            "before them are fed. Put the old input back and resume, or start a new run."
        )


def page_digest(page: Sequence[SourceRow]) -> str:
    """Return a digest of the rows of a page, in order: values, and what was refused."""
    found = hashlib.sha256()
    for row in page:
        found.update(canonical([dict(row.values), row.refused]))
        found.update(b"\n")
    return found.hexdigest()[:32]


@dataclass(slots=True)
class Feeder:
    """Feeds one life of a run. `on_fed` is told how many rows are durable in `rows.input`.

    The source was compared with what the run began with before; this only writes.
    """

    writer: LogWriter
    run: str
    life: int
    dataset: str
    row_bytes_max: int
    on_fed: Callable[[int], None]
    note: Note = silent
    fed: int = 0

    async def feed(self, pages: Pages, digests: Sequence[str]) -> None:
        """Feed all pages; `digests`: what they were when the input was checked.

        Raises: InputChanged; LogUnwritable for a record that was not delivered.
        """
        numbered = 0
        async for page in pages:
            if numbered >= len(digests) or page_digest(page) != digests[numbered]:
                raise InputChanged(self.run, self.fed + 1, self.fed + len(page))
            numbered += 1
            for index, row in enumerate(page, self.fed):
                await self._send(index, row)
            # A page is durable before the next is read: memory stays bounded, and a record that
            # was not delivered stops the feed here.
            await self.writer.flush()
            self.fed += len(page)
            self.on_fed(self.fed)

    async def _send(self, index: int, row: SourceRow) -> None:
        record = self._record(index, row)
        value = encode(record)
        if (reason := self._unfit(index, value)) is not None:
            record = self._record(index, self._without_values(index, row, reason))
            value = encode(record)
        assert record.row is not None
        found = headers(
            record, id_=f"{self.run}/{index}", source=f"rowmill/run/{self.run}", run=self.run
        )
        sent = await self.writer.send(ROWS_INPUT, record.row, value, headers=found)
        if self.note is not silent:
            sent.add_done_callback(lambda done: self._note_fed(record, done))

    def _note_fed(self, record: RowInput, done: asyncio.Future[RecordMetadata]) -> None:
        if not done.cancelled() and done.exception() is None:
            at = done.result()
            self.note(
                "fed",
                run=self.run,
                row=record.row,
                index=record.index,
                partition=at.partition,
                offset=at.offset,
            )

    def _record(self, index: int, row: SourceRow) -> RowInput:
        return RowInput(
            run=self.run,
            life=self.life,
            dataset=self.dataset,
            row=row.row,
            index=index,
            values=dict(row.values),
            refused=row.refused,
        )

    def _unfit(self, index: int, value: bytes) -> str | None:
        """Return why no topic takes the record of a row, None where one does (R9, R10)."""
        where = f'dataset("{self.dataset}"), row {index + 1:,} of the input,'
        if (name := self.writer.secret_in(value)) is not None:
            return f"{where} carries the secret {name}, which is not kept"
        if len(value) > self.row_bytes_max:
            return (
                f"{where} has {len(value):,} bytes, the limit is {self.row_bytes_max:,} "
                "(ROWMILL_ROW_BYTES_MAX)"
            )
        return None

    def _without_values(self, index: int, row: SourceRow, reason: str) -> SourceRow:
        """Return what is left of a row that no topic takes: its place, and why."""
        refused = row.refused
        if refused is None or self.writer.secret_in(refused.encode()) is not None:
            refused = reason
        return SourceRow(refused_row_id(self.dataset, index), {}, refused)
