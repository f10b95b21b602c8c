"""Old receipts go: a final one that settled longer ago than the setting is deleted by its owner.

The store would otherwise grow with every question that was ever asked. What is deleted is bought
again when somebody asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from rowmill.streams.core.receipts import CHUNK_KEYS
from rowmill.streams.dispatch.claims import Claims
from rowmill.streams.dispatch.owner import Ownership, ReceiptStore
from rowmill.streams.engine.tables import NotOwned
from rowmill.streams.ports import Clock

log = structlog.get_logger(__name__)

SWEEP_EVERY_S = 3600.0
"""A time to live is counted in days, so an hour more does not matter."""

LOOK_AT_ONCE = 100
"""Receipts that are decoded before others have a turn: some milliseconds."""


class Expiry:
    """Looks through the receipts of this process's partitions. `ttl_ms` 0: keeps all."""

    def __init__(
        self, store: ReceiptStore, claims: Claims, ownership: Ownership, clock: Clock, ttl_ms: int
    ) -> None:
        self._store = store
        self._claims = claims
        self._ownership = ownership
        self._clock = clock
        self._ttl_ms = ttl_ms

    async def keep_sweeping(self, partitions: Iterable[int], came: asyncio.Event) -> None:
        """Sweep `partitions`, a view that changes, now and then and whenever some `came`."""
        if not self._ttl_ms:
            return
        while True:
            came.clear()
            await self.sweep(tuple(partitions))
            try:
                await asyncio.wait_for(came.wait(), SWEEP_EVERY_S)
            except TimeoutError:
                continue

    async def sweep(self, partitions: Iterable[int]) -> int:
        """Delete what is too old; returns how many. A partition that goes meanwhile is left."""
        deleted = 0
        for partition in partitions:
            try:
                deleted += await self._sweep(partition)
            except NotOwned:
                log.info("sweep_left_to_next_owner", partition=partition)
        if deleted:
            log.info("receipts_expired", count=deleted)
        return deleted

    async def _sweep(self, partition: int) -> int:
        before_ms = self._clock.wall_ms() - self._ttl_ms
        waiting: list[asyncio.Future[None]] = []
        deleted = 0
        for number, receipt in enumerate(self._store.scan(partition), start=1):
            if receipt.settled_before(before_ms) and self._ownership.gate():
                gone = self._claims.expire(partition, receipt.key, before_ms)
                if gone is not None:
                    waiting.append(gone)
            if len(waiting) >= CHUNK_KEYS:
                deleted += await _durable(waiting)
            if number % LOOK_AT_ONCE == 0:
                await asyncio.sleep(0)
        return deleted + await _durable(waiting)


async def _durable(waiting: list[asyncio.Future[None]]) -> int:
    """Wait for deletions and forget them. Returns: how many. Raises: what one of them raised."""
    count = len(waiting)
    await asyncio.gather(*waiting)
    waiting.clear()
    return count
