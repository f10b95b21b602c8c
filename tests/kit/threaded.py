"""A server of a test's own, on a loop in a thread beside the test."""

from __future__ import annotations

import abc
import asyncio
import threading
from types import TracebackType
from typing import Self

WITHIN_S = 10


class ThreadedServer(abc.ABC):
    """Listens while it is used as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @abc.abstractmethod
    async def _listen(self) -> None:
        """Begin to listen."""

    @abc.abstractmethod
    async def _end(self) -> None:
        """Close what is open."""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(WITHIN_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN_S)
