"""Which sheet a run's rows belong to, and how far all sheets have come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from rowmill.streams.ports import SheetUnusable, Source
from rowmill.streams.sink.flush import SheetFlush
from rowmill.topics.contracts import RunRecord
from rowmill.topics.views import RunsView

log = structlog.get_logger(__name__)


class Sheets:
    """The sheets of all known runs, each with its flushing.

    `make`: the flushing of a URL. `normal_url`: the one spelling of a URL, or SheetUnusable.
    `default_url`: the sheet of runs that name none.
    """

    def __init__(
        self,
        runs: RunsView,
        source: Source,
        make: Callable[[str], SheetFlush],
        normal_url: Callable[[str], str],
        default_url: str,
    ) -> None:
        self._runs = runs
        self._source = source
        self._make = make
        self._normal_url = normal_url
        self._default_url = default_url
        self._flushes: dict[str, SheetFlush] = {}
        self._of_run: dict[str, SheetFlush] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reads_from: dict[int, int] = {}

    def note_run(self, record: RunRecord) -> None:
        """Follow a run: its sheet is kept up to date while it is open."""
        self._flush_of(record).note_run(record)

    def of_run(self, run: str) -> tuple[SheetFlush, RunRecord] | None:
        """Return the flushing of a run's sheet and the run; None while the run is not known."""
        record = self._runs.get(run)
        return None if record is None else (self._flush_of(record), record)

    async def open_all(self) -> None:
        """Open the sheets that are known so far; those that can't be are tried when needed."""
        await asyncio.gather(*(flush.open_once() for flush in self._flushes.values()))

    def wanted(self, partition: int) -> int | None:
        """Return the lowest `next` of all open sheets: 0 where one never saw the partition, None
        where no sheet is open.
        """
        opened = [flush.next for flush in self._flushes.values() if flush.next is not None]
        return min((next_.get(partition, 0) for next_ in opened), default=None)

    def highest(self, partition: int) -> tuple[int, str]:
        """Return the highest `next` of all open sheets, and the sheet that has it."""
        found = [
            (flush.next.get(partition, 0), flush.url)
            for flush in self._flushes.values()
            if flush.next is not None
        ]
        return max(found, default=(0, ""))

    def begin(self, reads_from: Mapping[int, int]) -> None:
        """Take partitions over, each read from the offset given. Raises: SheetBehind."""
        self._reads_from.update(reads_from)
        for flush in self._flushes.values():
            flush.begin(reads_from)

    async def give_up(self, partitions: set[int]) -> None:
        """Write what waits, as far as it can be written now, then let partitions go."""
        await asyncio.gather(*(flush.drain() for flush in self._flushes.values()))
        for partition in partitions:
            self._reads_from.pop(partition, None)
        for flush in self._flushes.values():
            flush.forget(partitions)

    async def close(self) -> None:
        """End all flushing and close the sheets."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(flush.close() for flush in self._flushes.values()))

    def all(self) -> Iterable[SheetFlush]:
        """Return the flushing of every sheet."""
        return self._flushes.values()

    def _flush_of(self, record: RunRecord) -> SheetFlush:
        known = self._of_run.get(record.run)
        if known is not None:
            return known
        url = self._url_of(record)
        flush = self._flushes.get(url)
        if flush is None:
            flush = self._flushes[url] = self._make(url)
            flush.begin(self._reads_from, is_new=True)
            self._tasks.append(asyncio.create_task(flush.run(), name=f"flush {url}"))
            log.info("sheet_known", sheet=url, run=record.run)
        self._of_run[record.run] = flush
        return flush

    def _url_of(self, record: RunRecord) -> str:
        url = record.options.sheet or self._default_url
        try:
            return self._normal_url(url)
        except SheetUnusable:
            return url  # opening it says what is wrong; its rows wait
