"""Takeovers: going on with what a former owner left open (R4, R6, point 4 of the architecture)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from rowmill.streams.core import receipts
from rowmill.streams.dispatch.calls import OpenCall
from rowmill.streams.dispatch.lanes import Lanes
from rowmill.streams.dispatch.notes import CallNotes
from rowmill.streams.dispatch.owner import OwnerMail, Ownership
from rowmill.streams.ports import Clock

if TYPE_CHECKING:
    from rowmill.streams.dispatch.claims import Claims

log = structlog.get_logger(__name__)


class Takeovers:
    """Goes on with open receipts. `new_id` makes random ids."""

    def __init__(
        self,
        claims: Claims,
        lanes: Lanes,
        mail: OwnerMail,
        ownership: Ownership,
        clock: Clock,
        new_id: Callable[[], str],
        notes: CallNotes,
    ) -> None:
        self._claims = claims
        self._lanes = lanes
        self._mail = mail
        self._ownership = ownership
        self._clock = clock
        self._new_id = new_id
        self._notes = notes
        self._tasks: set[asyncio.Task[None]] = set()

    def go_on(self, call: OpenCall) -> None:
        """Go on with an open receipt that somebody else left: parked ones at once.

        A running one was sent and not settled, and is taken over when that is safe: of the same
        instance without waiting (its store's lock proves that the former process is dead), of a
        foreign one after its lease's full duration on our own clock (point 4 of the architecture).
        Both read first what lies in the partition: a former owner, which may be this very process
        before a rebalance, may have handed its answer over there (R6).
        """
        if call.receipt.batch is not None:
            batch = self._claims.batches.rejoin(call)
            if batch is not None:
                self.go_on(batch)
            if call.receipt.batch is not None:
                return
        if call.receipt.state != "running":
            self._claims.starts.offer(call)
            return
        lease = call.receipt.lease
        if lease is not None and lease.instance != self._ownership.instance:
            recovered_ms = self._ownership.recovered_ms(call.partition)
            call.foreign_until_ms = recovered_ms + lease.duration_ms
        task = asyncio.create_task(self._take_over(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_over(self, call: OpenCall) -> None:
        lane = self._lanes.of(call.provider)
        lane.pacer.occupy()  # its former owner's request may be under way
        try:
            await self._outlast(call)
        finally:
            lane.ended(left=True)
        if not self._claims.goes_on(call) or call.receipt.state != "running":
            return
        taken = receipts.take_over(
            call.receipt,
            idempotent=call.tool.idempotent,
            key_lifetime_ms=round(call.tool.key_lifetime_s * 1000),
            now_wall_ms=self._clock.wall_ms(),
        )
        self._notes.taken_over(call.receipt, taken)
        log.info("receipt_taken_over", receipt=taken.key, state=taken.state, deaths=taken.deaths)
        call.receipt = taken
        if not taken.final:
            self._claims.starts.offer(call)
        else:
            await self._claims.end(call, taken)

    async def _outlast(self, call: OpenCall) -> None:
        """Wait for a foreign lease to end, renewals included, and read what its owner last sent."""
        while self._claims.goes_on(call):
            left_ms = call.foreign_until_ms - self._clock.monotonic_ms()
            if left_ms > 0:
                await asyncio.sleep(left_ms / 1000)
                continue
            until_ms = call.foreign_until_ms
            await self._mail.read_past(call.partition, self._new_id())
            if call.foreign_until_ms == until_ms:
                return
