"""The sheet as a run's main sees it: until it shows all that was reported as written (S4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from rowmill.client.report import FAILURES_MAX, Failure
from rowmill.errors import InfrastructureError
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import cluster_id, end_offsets
from rowmill.streams.adapters.sheet.reading import DatasetMissing, SheetReader
from rowmill.streams.adapters.sheet.url import sheet_file
from rowmill.streams.core.accounting import Counts
from rowmill.streams.ports import SheetUnusable, Source
from rowmill.topics.catalogue import ROWS_COMPLETED
from rowmill.topics.contracts import RunRecord

TRIES = 100
TRY_EVERY_S = 0.025
PATIENT_EVERY_S = 0.5
PATIENT_S = 60.0
"""S4: 100 tries 25 ms apart. After them a sink that is being restarted gets this much more."""

T = TypeVar("T")


class SheetBehind(InfrastructureError):
    """The sheet does not show what was reported as written. Nothing is lost: it is in Kafka."""

    def __init__(self, sheet: str, what: str, run: str) -> None:
        super().__init__(
            f"Sheet {sheet} {what}. The results are safe in Kafka and reach the sheet once a sink "
            f"worker writes it: rowmill status. Then look again: rowmill runs show {run}."
        )


class SheetView:
    """Reads one run's rows in the sheet. Blocking reads are done in a thread."""

    def __init__(self, settings: Settings, record: RunRecord) -> None:
        self._settings = settings
        self._record = record
        self._url = settings.sheet_url

    @property
    def shown(self) -> str:
        """The sheet's file, as a user may type it."""
        return str(sheet_file(self._url))

    async def shows_everything(
        self, counts: Counts, on_behind: Callable[[int], None], *, growing: bool = False
    ) -> None:
        """Return once the sheet holds all that is in `rows.completed` now, and the run's `counts`.

        `growing`: the run was stopped, and rows that were admitted may still end: the sheet may hold
        more. `on_behind` is told how many records the sheet lacks. Raises: SheetBehind.
        """
        ends = await end_offsets(self._settings, ROWS_COMPLETED)
        source = Source(await self._reader_name(), self._topic())
        behind = 0
        for wait_s in _waits():
            behind = await asyncio.to_thread(self._behind, source, ends)
            if behind == 0:
                await asyncio.to_thread(self._compare, counts, growing)
                return
            on_behind(behind)
            await asyncio.sleep(wait_s)
        raise SheetBehind(
            self.shown, f"is {behind:,} records behind after {PATIENT_S:.0f} s", self._record.run
        )

    async def failures(self, counts: Counts) -> list[Failure]:
        """Return why rows failed, the most frequent reason first; [] where the sheet can't tell."""
        if counts.failed == 0:
            return []
        return await asyncio.to_thread(self._failures, counts.failed)

    async def _reader_name(self) -> str:
        group = f"{self._settings.topic_prefix}rowmill-sink"
        return f"{group}@{await cluster_id(self._settings)}"

    def _topic(self) -> str:
        return f"{self._settings.topic_prefix}{ROWS_COMPLETED.name}"

    def _behind(self, source: Source, ends: Mapping[int, int]) -> int:
        try:
            with SheetReader(self._url) as sheet:
                found = sheet.next_offsets(source)
        except SheetUnusable:
            found = {}  # the sink makes the file with its first chunk
        return sum(max(0, end - found.get(partition, 0)) for partition, end in ends.items())

    def _compare(self, counts: Counts, growing: bool) -> None:
        """Compare the run's counts in the sheet with the changelog's. Raises: SheetBehind."""
        run, dataset = self._record.run, self._record.dataset
        expected = {
            status: getattr(counts, status)
            for status in ("completed", "failed", "skipped")
            if getattr(counts, status)
        }
        if not expected:
            return
        try:
            with SheetReader(self._url) as sheet:
                found = sheet.counts(dataset, run)
                beyond = [found.get(status, 0) - rows for status, rows in expected.items()]
                if not any(beyond) or (growing and min(beyond) >= 0):
                    return
                if sheet.runs(dataset)[-1:] not in ([], [run]):
                    return  # a newer run of the dataset has taken rows over since
        except DatasetMissing:
            found = {}
        shown = ", ".join(f"{rows:,} {status}" for status, rows in sorted(found.items())) or "none"
        wanted = ", ".join(f"{rows:,} {status}" for status, rows in expected.items())
        raise SheetBehind(self.shown, f"shows {shown}, reported were {wanted}", run)

    def _failures(self, failed: int) -> list[Failure]:
        found: dict[str, Failure] = {}
        try:
            with SheetReader(self._url) as sheet:
                for row in sheet.rows(self._record.dataset, self._record.run):
                    if row.status != "failed":
                        continue
                    reason = row.error or "no reason given"
                    known = found.get(reason)
                    if known is None:
                        found[reason] = Failure(error=reason, rows=1, first_index=row.index)
                    else:
                        found[reason] = known.model_copy(update={"rows": known.rows + 1})
                    failed -= 1
                    if failed == 0:
                        break
        except (SheetUnusable, DatasetMissing):
            return []
        return sorted(found.values(), key=lambda each: -each.rows)[:FAILURES_MAX]


def _waits() -> list[float]:
    return [TRY_EVERY_S] * TRIES + [PATIENT_EVERY_S] * int(PATIENT_S / PATIENT_EVERY_S)
