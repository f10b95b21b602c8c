"""One sheet: its rows into chunks, chunks into transactions, and only then the acknowledgements.

A sheet that can't be written loses nothing: its chunk is tried again, its rows wait, and when too
many wait the partitions are not fetched (G3). Other sheets have a loop and a thread of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from rowmill.streams.core.chunks import Chunk, ChunkBuilder
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.ports import (
    Clock,
    Flushed,
    Note,
    RowsRefused,
    SheetBehind,
    SheetUnusable,
    SheetUnwritable,
    Source,
    silent,
)
from rowmill.streams.sink.notes import ChunkNotes
from rowmill.streams.sink.writer_thread import WriterThread
from rowmill.topics.contracts import RunRecord

log = structlog.get_logger(__name__)

IDLE_LINGER_MS = 60_000
"""How long a sheet of no open run may stay behind over records of other sheets: what a killed sink
reads again, at most."""

WATCHED_MS = 30_000
"""A main renews its run every 3 s; one not heard of for this long is gone."""

BACKOFF_S = (0.1, 5.0)
"""First and longest wait before an unwritable sheet is tried again; doubling."""

BREAKER_AFTER_MS = 30_000
"""Unwritable for this long is told as an error (*Defaults*)."""

CHUNKS_WAITING_MAX = 8
"""Chunks of rows and bytes that wait before partitions are not fetched, until a quarter is left."""

DRAIN_S = 5.0
"""Longest wait for the last chunk when partitions leave; what stays is delivered again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a chunk may hold (*Defaults*): rows, bytes, and milliseconds that its first row waits."""

    rows: int
    bytes: int
    linger_ms: int


@dataclass(frozen=True, slots=True)
class _Early:
    """A row that came before the sheet could be opened."""

    delivery: Delivery
    write: RowWrite


class SheetFlush:
    """The flushing of one sheet. Runs as one task (`run`); everything else is called on its loop.

    `positions`: by partition, the offset below which every record was judged. `set_aside`: send a
    delivery to the dead letter. `on_pressure`: told True when partitions should not be fetched.
    `fail`: end the process, with a reason that a new start mends.
    """

    def __init__(
        self,
        url: str,
        source: Source,
        thread: WriterThread,
        limits: Limits,
        clock: Clock,
        *,
        positions: Callable[[], Mapping[int, int]],
        set_aside: Callable[[Delivery, str], None],
        on_pressure: Callable[[SheetFlush, bool], None],
        fail: Callable[[BaseException], None],
        note: Note = silent,
    ) -> None:
        self.url = url
        self.next: dict[int, int] | None = None
        """The sheet's `next` by partition; None until it could be opened."""
        self.trouble: str | None = None
        """Why the sheet can't be written now; None while it can."""
        self._source = source
        self._thread = thread
        self._limits = limits
        self._clock = clock
        self._positions = positions
        self._set_aside = set_aside
        self._on_pressure = on_pressure
        self._fail = fail
        self._notes = ChunkNotes(url, note)
        self._builder = ChunkBuilder[RowWrite](
            rows_max=limits.rows, bytes_max=limits.bytes, linger_ms=limits.linger_ms
        )
        self._early: list[_Early] = []
        self._early_bytes = 0
        self._deliveries: dict[tuple[int, int], Delivery] = {}
        self._reads_from: dict[int, int] = {}
        self._unasked: set[int] = set()
        """Partitions whose reading began without knowing this sheet's `next`."""
        self._renewed_ms: dict[str, int] = {}
        self._unprepared: dict[tuple[str, str], RunRecord] = {}
        self._prepared: set[tuple[str, str]] = set()
        self._trouble_since_ms = 0
        self._pressed = False
        self._wake = asyncio.Event()
        self._drained: asyncio.Future[None] | None = None

    # --- what the intake tells -------------------------------------------------------------------

    def note_run(self, record: RunRecord) -> None:
        """Keep the sheet closely up to date while the main of an open run lives: it looks (S4)."""
        if record.state in ("claiming", "open"):
            if not self._is_watched():
                self._wake.set()
            self._renewed_ms[record.run] = self._clock.monotonic_ms()
        else:
            self._renewed_ms.pop(record.run, None)

    def begin(self, reads_from: Mapping[int, int], *, is_new: bool = False) -> None:
        """Take partitions over, each read from the offset given.

        `is_new`: no run named this sheet when the offsets were decided, so nothing below them is
        its. Raises: SheetBehind where the sheet wants records below.
        """
        self._reads_from.update(reads_from)
        if self.next is None:
            self._unasked |= set() if is_new else reads_from.keys()
        else:
            for partition in reads_from:
                self._begin(partition)

    def forget(self, partitions: Collection[int]) -> None:
        """Let partitions go, with their rows that are not written: they are delivered again."""
        self._builder.forget(partitions)
        self._early = [e for e in self._early if e.delivery.partition not in partitions]
        self._early_bytes = sum(len(e.delivery.value or b"") for e in self._early)
        for place in [place for place in self._deliveries if place[0] in partitions]:
            del self._deliveries[place]
        for partition in partitions:
            self._reads_from.pop(partition, None)
            self._unasked.discard(partition)
        self._note_pressure()

    def offer(self, delivery: Delivery, write: RowWrite, record: RunRecord) -> None:
        """Take a row in; it is acknowledged once it is durable, at once if the sheet has it."""
        run = (write.dataset, write.run)
        if run not in self._prepared:
            self._unprepared[run] = record
        if self.next is None:
            self._early.append(_Early(delivery, write))
            self._early_bytes += len(delivery.value or b"")
            self._wake.set()
        else:
            self._offer(delivery, write)
        self._note_pressure()

    async def drain(self) -> None:
        """Write what waits, not longer than DRAIN_S and not where the sheet can't be written."""
        if self.next is None or self.trouble is not None:
            return
        self._drained = asyncio.get_running_loop().create_future()
        self._wake.set()
        try:
            await asyncio.wait_for(self._drained, DRAIN_S)
        except TimeoutError:
            log.warning("sheet_not_drained", sheet=self.url, rows=self.rows_waiting)
        finally:
            self._drained = None

    @property
    def rows_waiting(self) -> int:
        """Rows that are not durable yet."""
        return len(self._deliveries) + len(self._early)

    @property
    def is_stuck(self) -> bool:
        """True where rows wait for a sheet that can't be written."""
        return self.trouble is not None and self.rows_waiting > 0

    # --- the loop --------------------------------------------------------------------------------

    async def open_once(self) -> bool:
        """Try to open the sheet. Returns: False where it can't be; `trouble` says why.

        Raises: SheetBehind where it wants records that are not read any more.
        """
        try:
            self.next = dict(await self._thread.next_offsets(self._source))
        except (SheetUnusable, SheetUnwritable) as error:
            self._note_trouble(error)
            return False
        self._note_recovery()
        for partition in self._reads_from:
            self._begin(partition)
        early, self._early, self._early_bytes = self._early, [], 0
        for one in early:
            if one.delivery.live:
                self._offer(one.delivery, one.write)
        return True

    async def run(self) -> None:
        """Flush until cancelled."""
        try:
            await self._open_when_needed()
            while True:
                await self._until_due()
                chunk = self._builder.take()
                if chunk is not None:
                    await self._write(chunk)
                self._note_pressure()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a loop that ended in silence would hold all rows
            self._fail(error)

    async def close(self) -> None:
        """Close the sheet."""
        await self._thread.close()

    async def _open_when_needed(self) -> None:
        wait_s = BACKOFF_S[0]
        while self.next is None:
            if not self._early and not self._is_watched():
                self._wake.clear()
                await self._wake.wait()
            elif not await self.open_once():
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, BACKOFF_S[1])

    async def _until_due(self) -> None:
        while True:
            self._wake.clear()
            now_ms = self._clock.monotonic_ms()
            for partition, position in self._positions().items():
                if partition in self._reads_from:
                    self._builder.passed(partition, position, now_ms)
            linger_ms = self._limits.linger_ms if self._is_watched() else IDLE_LINGER_MS
            due_ms = self._builder.due_ms(passed_linger_ms=linger_ms)
            if due_ms is None and self._drained is not None and not self._drained.done():
                self._drained.set_result(None)
            if due_ms is not None and (due_ms <= now_ms or self._drained is not None):
                return
            wait_ms = linger_ms if due_ms is None else min(due_ms - now_ms, linger_ms)
            try:
                await asyncio.wait_for(self._wake.wait(), wait_ms / 1000)
            except TimeoutError:
                pass

    async def _write(self, chunk: Chunk[RowWrite]) -> None:
        """Write a chunk, as often as it takes. Partitions that leave meanwhile take theirs along."""
        wait_s = BACKOFF_S[0]
        while True:
            gone = {span.partition for span in chunk.spans} - self._reads_from.keys()
            chunk = chunk.without_partitions(gone)
            if not chunk.spans:
                return
            try:
                await self._prepare()
                self._notes.writing(chunk)
                flushed = await self._thread.flush(self._source, chunk)
            except RowsRefused as refused:
                chunk = self._without_refused(chunk, refused)
            except (SheetUnwritable, SheetUnusable) as error:
                self._note_trouble(error)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, BACKOFF_S[1])
            else:
                self._note_recovery()
                self._settle(chunk, flushed)
                return

    async def _prepare(self) -> None:
        """Give the datasets of new runs their columns, in the order of input and play."""
        for run, record in list(self._unprepared.items()):
            try:
                columns = record.input_columns, record.output_columns
                await self._thread.prepare(record.dataset, *columns)
            except ValueError as error:  # too many columns: its rows will be refused, each says why
                log.error(
                    "sheet_columns_refused", sheet=self.url, run=record.run, reason=str(error)
                )
            self._prepared.add(run)
            self._unprepared.pop(run, None)

    def _settle(self, chunk: Chunk[RowWrite], flushed: Flushed) -> None:
        self._notes.wrote(chunk, flushed)
        if self.next is not None:
            self.next.update(flushed.next_offsets)
        for span in chunk.spans:
            for offset in span.offsets:
                delivery = self._deliveries.pop((span.partition, offset), None)
                if delivery is not None:
                    delivery.ack()
        log.debug(
            "chunk_written",
            sheet=self.url,
            written=flushed.written,
            ignored=flushed.ignored,
            had=flushed.had,
        )

    def _without_refused(self, chunk: Chunk[RowWrite], refused: RowsRefused) -> Chunk[RowWrite]:
        for place, reason in refused.reasons.items():
            delivery = self._deliveries.pop(place, None)
            if delivery is not None:
                self._set_aside(delivery, f"the sheet can't hold this row: {reason}")
        return chunk.without_rows(refused.reasons)

    # --- small steps -----------------------------------------------------------------------------

    def _begin(self, partition: int) -> None:
        assert self.next is not None
        next_, reads_from = self.next.get(partition), self._reads_from[partition]
        wanted = 0 if next_ is None and partition in self._unasked else next_
        if wanted is not None and wanted < reads_from:
            # Reading on from here would pass records over that the sheet lacks, for good.
            raise SheetBehind(
                f"Sheet {self.url} wants offset {wanted} of {self._source.topic}/{partition}, "
                f"which is read from {reads_from}. The sink starts again and reads from there."
            )
        self._builder.begin(partition, next_)

    def _offer(self, delivery: Delivery, write: RowWrite) -> None:
        place = delivery.partition, delivery.offset
        size = len(delivery.value or b"")
        was_empty = not self._builder.rows_waiting
        if not self._builder.offer(*place, write, size, self._clock.monotonic_ms()):
            delivery.ack()
            return
        self._deliveries[place] = delivery
        if was_empty or self._is_full():
            self._wake.set()

    def _is_watched(self) -> bool:
        """True while the main of one of the sheet's open runs was heard of lately."""
        since_ms = self._clock.monotonic_ms() - WATCHED_MS
        return any(renewed_ms > since_ms for renewed_ms in self._renewed_ms.values())

    def _is_full(self) -> bool:
        builder = self._builder
        return (
            builder.rows_waiting >= self._limits.rows or builder.bytes_waiting >= self._limits.bytes
        )

    def _note_pressure(self) -> None:
        rows = self._builder.rows_waiting + len(self._early)
        size = self._builder.bytes_waiting + self._early_bytes
        chunks = max(rows / self._limits.rows, size / self._limits.bytes)
        if not self._pressed and chunks >= CHUNKS_WAITING_MAX:
            self._pressed = True
            self._on_pressure(self, True)
        elif self._pressed and chunks <= CHUNKS_WAITING_MAX / 4:
            self._pressed = False
            self._on_pressure(self, False)

    def _note_trouble(self, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        if self.trouble is None:
            self._trouble_since_ms = now_ms
        self.trouble = str(error)
        for_ms = now_ms - self._trouble_since_ms
        tell = log.error if for_ms >= BREAKER_AFTER_MS else log.warning
        tell("sheet_unwritable", sheet=self.url, rows_behind=self.rows_waiting,
             for_s=round(for_ms / 1000, 1), reason=self.trouble)  # fmt: skip
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _note_recovery(self) -> None:
        if self.trouble is not None:
            for_s = round((self._clock.monotonic_ms() - self._trouble_since_ms) / 1000, 1)
            log.info("sheet_writable_again", sheet=self.url, after_s=for_s)
            self.trouble = None
