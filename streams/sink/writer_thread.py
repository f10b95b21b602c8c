"""A sheet in a thread of its own: blocking drivers never stop the loop, and one thread writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rowmill.streams.core.chunks import Chunk
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.ports import Flushed, Sheet, Source

T = TypeVar("T")

OpenSheet = Callable[[str], Sheet]


class WriterThread:
    """Opens the sheet at the first need and passes calls on, one at a time, in order.

    Each method raises what the sheet's does, and SheetUnusable where opening fails.
    """

    def __init__(self, url: str, open_sheet: OpenSheet) -> None:
        self._url = url
        self._open_sheet = open_sheet
        self._sheet: Sheet | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sheet-writer")

    async def next_offsets(self, source: Source) -> Mapping[int, int]:
        """Return the sheet's `next` of each partition."""
        return await self._call(lambda: self._opened().next_offsets(source))

    async def prepare(self, dataset: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Give a dataset its columns."""
        await self._call(lambda: self._opened().prepare(dataset, inputs, outputs))

    async def flush(self, source: Source, chunk: Chunk[RowWrite]) -> Flushed:
        """Write a chunk in one transaction."""
        return await self._call(lambda: self._opened().flush(source, chunk))

    async def close(self) -> None:
        """Close the sheet after the call that may still run, and end the thread."""
        await self._call(self._close)
        self._thread.shutdown(wait=False)

    def _opened(self) -> Sheet:
        if self._sheet is None:
            self._sheet = self._open_sheet(self._url)
        return self._sheet

    def _close(self) -> None:
        if self._sheet is not None:
            self._sheet.close()

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
