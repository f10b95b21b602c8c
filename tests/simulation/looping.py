"""An event loop for one simulated process: the world decides when, and whether, it runs."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    AbstractEventLoop = Any  # what is missing here would be I/O
else:
    from asyncio import AbstractEventLoop


ROUNDING_S = 1e-6
"""Converting clocks loses digits: a timer that is due may seem to lie just ahead."""


class SimLoop(AbstractEventLoop):  # type: ignore[misc]
    """Ready callbacks and timers, without any I/O.

    Its time is the process's own monotonic clock (`now_s`, given by the world). The world calls
    `run` for a turn; a process that is frozen gets none, and its timers fire late.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._number = 0
        self.failures: list[BaseException] = []
        self.halted = False

    # --- what the world does -----------------------------------------------------------------------

    def run(self, most: int) -> None:
        """Run ready callbacks, `most` of them at most; what they make ready runs too.

        Where one sets `halted`, it is the last.
        """
        ready = self.ready
        events._set_running_loop(self)
        try:
            while ready and most and not self.halted:
                most -= 1
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(None)

    def next_timer_s(self) -> float | None:
        """Return when the next timer is due, on its own clock."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def wake(self) -> None:
        """Move timers that are due to the ready callbacks."""
        timers, now_s = self._timers, self._now_s() + ROUNDING_S
        while timers and timers[0][0] <= now_s:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self.ready.append(handle)

    # --- what asyncio asks -------------------------------------------------------------------------

    def time(self) -> float:
        """Return the process's monotonic clock, seconds."""
        return self._now_s()

    def call_soon(
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Make a callback ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back after `delay` seconds of its own clock."""
        return self.call_at(self._now_s() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a time of its own clock."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, **_: Any
    ) -> asyncio.Task[Any]:
        """Return a task of this loop."""
        return asyncio.Task(coro, loop=self, name=name)

    def get_debug(self) -> bool:
        """Return False: it costs."""
        return False

    def is_running(self) -> bool:
        """Return True: to its callbacks it always is."""
        return True

    def is_closed(self) -> bool:
        """Return False: a dead process's loop is dropped instead."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody caught: a simulation with such a failure has failed."""
        error = context.get("exception") or RuntimeError(context.get("message", "?"))
        self.failures.append(error)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: cancelled timers are passed over."""
