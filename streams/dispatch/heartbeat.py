"""A lease kept alive while its call is open, and given up in time (R4).

The interval follows from the lease as it was issued. A beat that can't be written is logged and
tried again; the call goes on until the last confirmed expiry less the clock allowance. Then the
lease is lost: the call is cut off, since a successor may already send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from rowmill.streams.core.receipts import Lease
from rowmill.streams.ports import Clock

log = structlog.get_logger(__name__)

T = TypeVar("T")

BEATS_PER_LEASE = 2
"""The first beat comes at half of the lease, so a call shorter than that needs none."""

RETRIES_PER_LEASE = 10
"""A missed beat is tried again after a tenth of the lease."""

TRY_PART = 0.2
"""Part of the lease after which a beat without an answer counts as missed: the next one must have
time enough to be confirmed before the lease ends (O23)."""

ALLOWANCE = 0.05
"""Part of the lease that is given away for clocks that do not run alike: 5 % is far more than two
crystals differ (some 0.01 %), and covers the way of the confirmation."""


class LeaseLost(Exception):
    """No beat was confirmed in time: the call was cut off, its outcome is not known."""


class Heartbeat:
    """Keeps one lease. `renew` writes it again and returns once that is acknowledged."""

    def __init__(
        self, lease: Lease, renew: Callable[[], Awaitable[None]], clock: Clock, sent_ms: int
    ) -> None:
        """`sent_ms`: own monotonic clock when the lease was written."""
        self.lease = lease
        self._renew = renew
        self._clock = clock
        self._confirmed_ms = sent_ms
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None
        self._call: asyncio.Task[object] | None = None
        self._lost = False

    @property
    def expired(self) -> bool:
        """True where nobody may send or settle under this lease any more."""
        return self._left_ms() <= 0

    @property
    def ends_ms(self) -> float:
        """Own monotonic clock when the lease ends for everybody, unless it is renewed."""
        return self._confirmed_ms + self.lease.duration_ms

    def _left_ms(self) -> float:
        ends_ms = self._confirmed_ms + self.lease.duration_ms * (1 - ALLOWANCE)
        return ends_ms - self._clock.monotonic_ms()

    async def keep(self, call: Awaitable[T]) -> T:
        """Await `call` with the lease kept. Raises: LeaseLost, and whatever `call` raises."""
        self._call = asyncio.current_task()
        self._later(self.lease.duration_ms / BEATS_PER_LEASE)
        try:
            return await call
        except asyncio.CancelledError:
            if self._lost and self._call is not None:
                self._call.uncancel()
                raise LeaseLost from None
            raise
        finally:
            self._call = None
            if self._timer is not None:
                self._timer.cancel()
            if self._beat is not None:
                # One that has not begun yet would write the lease over what settles the call.
                self._beat.cancel()

    def _later(self, delay_ms: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_ms / 1000, self._due)

    def _due(self) -> None:
        if self._call is None:
            return
        if self.expired:
            self._lost = True
            log.error("lease_lost", lease=self.lease.id, duration_ms=self.lease.duration_ms)
            self._call.cancel()
            return
        if self._beat is None:
            self._beat = asyncio.get_running_loop().create_task(self._try())
        self._later(min(self.lease.duration_ms / RETRIES_PER_LEASE, max(1.0, self._left_ms())))

    async def _try(self) -> None:
        sent_ms = self._clock.monotonic_ms()
        renewal = asyncio.ensure_future(self._renew())
        wait_s = self.lease.duration_ms * TRY_PART / 1000
        try:
            await asyncio.wait_for(asyncio.shield(renewal), wait_s)
        except asyncio.CancelledError:
            renewal.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - any fault means: not renewed, tried again
            log.warning("heartbeat_missed", lease=self.lease.id, reason=repr(error))
            renewal.add_done_callback(lambda done: self._came_late(done, sent_ms))
        else:
            self._confirmed_ms = max(self._confirmed_ms, sent_ms)
            if self._timer is not None and self._call is not None:
                self._timer.cancel()
                self._later(self.lease.duration_ms / BEATS_PER_LEASE)
        finally:
            self._beat = None

    def _came_late(self, done: asyncio.Future[None], sent_ms: int) -> None:
        """A beat that counted as missed was confirmed after all: it renews from its sending."""
        if not done.cancelled() and done.exception() is None:
            self._confirmed_ms = max(self._confirmed_ms, sent_ms)
