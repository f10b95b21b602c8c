"""Claims: the receipt table on one side, the core's rules on the other (R1-R3, Q4).

One worker at a time sees all requests of a receipt, so a claim needs no lock: what is open here is
joined, what is final is answered, what a dead owner left is taken over, and the rest is bought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core import receipts
from rowmill.streams.core.receipts import Ask, Existing, Receipt
from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.calls import OpenCall, Waiter, waiter_of
from rowmill.streams.dispatch.lanes import Lanes
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.engine.tables import DurableTable, NotOwned
from rowmill.streams.ports import Clock
from rowmill.topics import codec
from rowmill.topics.contracts import ReceiptEntry, ToolRequest

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who this process is, asked anew each time: partitions come and go."""

    instance: str
    epoch: Callable[[int], int]
    owns: Callable[[int], bool]
    recovered_ms: Callable[[int], int]
    """Own monotonic clock at the end of a partition's recovery."""


class ReceiptStore:
    """The table `receipts` in the core's words."""

    def __init__(self, table: DurableTable, ownership: Ownership) -> None:
        self._table = table
        self._ownership = ownership

    def get(self, partition: int, key: str) -> Receipt | None:
        """Return the stored receipt. Raises: NotOwned."""
        value = self._table.get(partition, key)
        return None if value is None else codec.decode(ReceiptEntry, value).receipt

    def put(self, partition: int, receipt: Receipt) -> asyncio.Future[None]:
        """Store a receipt; the future resolves once it is durable. Raises: NotOwned."""
        entry = ReceiptEntry.model_construct(
            epoch=self._ownership.epoch(partition), receipt=receipt
        )
        return self._table.put(partition, receipt.key, codec.encode(entry))


class Claims:
    """Decides what each request becomes. `new_id` makes random ids."""

    def __init__(
        self,
        store: ReceiptStore,
        lanes: Lanes,
        answers: Answers,
        ownership: Ownership,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._answers = answers
        self._ownership = ownership
        self._clock = clock
        self._new_id = new_id
        self._open: dict[str, OpenCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Calls open in this process."""
        return len(self._open)

    def waits(self, delivery: Delivery) -> bool:
        """True where a live call of this process will acknowledge that request."""
        return any(
            waiter.delivery is delivery
            for call in self._open.values()
            for waiter in call.waiters.values()
        )

    def ask(
        self, delivery: Delivery, request: ToolRequest, tool: ToolSpec, provider: ProviderSpec
    ) -> None:
        """Answer a request, or let it wait for the purchase that will."""
        waiter = waiter_of(request, delivery)
        call = self._open.get(request.receipt)
        if call is not None:
            call.join(waiter)
            return
        stored = self._store.get(delivery.partition, request.receipt)
        if stored is not None and stored.state == "running":
            self._after_death(stored, request, waiter, tool, provider)
            return
        self._decide(stored, request, waiter, tool, provider)

    def settled(self, call: OpenCall) -> None:
        """Answer everybody who waits for a call whose final receipt is durable."""
        self.forget(call)
        epoch = self._ownership.epoch(call.partition)
        for waiter in call.waiters.values():
            self._answers.give(call.receipt, waiter, epoch)

    def forget(self, call: OpenCall) -> None:
        """Drop an open call without an answer: its requests come again to the present owner."""
        if self.holds(call):
            del self._open[call.receipt.key]

    def lost(self, partitions: set[int]) -> None:
        """Release what was not sent in partitions that went to another owner (R11)."""
        self._lanes.drop(partitions)
        for call in list(self._open.values()):
            if call.partition in partitions and not call.sending:
                self.forget(call)

    def holds(self, call: OpenCall) -> bool:
        """True while that call is open here: it was not left to another owner meanwhile."""
        return self._open.get(call.receipt.key) is call

    def _decide(
        self,
        stored: Receipt | None,
        request: ToolRequest,
        waiter: Waiter,
        tool: ToolSpec,
        provider: ProviderSpec,
    ) -> None:
        receipt, answer = receipts.claim(
            stored, self._ask(request, waiter, tool), purchase=self._new_id()
        )
        if isinstance(answer, Existing):
            epoch = self._ownership.epoch(waiter.delivery.partition)
            self._answers.give(receipt, waiter, epoch)
        else:
            call = self._opened(receipt, request, waiter, tool, provider)
            self._lanes.of(provider).offer(call)

    def _ask(self, request: ToolRequest, waiter: Waiter, tool: ToolSpec) -> Ask:
        stale_s = request.stale_after_s
        if stale_s is None:
            stale_s = tool.stale_after_s
        return Ask(
            key=request.receipt,
            tool=tool.id,
            provider=tool.provider,
            asker=waiter.asker,
            now_wall_ms=self._clock.wall_ms(),
            force=request.force,
            token=request.force_token,
            stale_after_ms=None if stale_s is None else round(stale_s * 1000),
            cost=tool.cost,
        )

    def _opened(
        self,
        receipt: Receipt,
        request: ToolRequest,
        waiter: Waiter,
        tool: ToolSpec,
        provider: ProviderSpec,
    ) -> OpenCall:
        call = OpenCall(
            receipt=receipt,
            partition=waiter.delivery.partition,
            tool=tool,
            provider=provider,
            input=request.input,
            timeout_s=request.timeout_s or tool.timeout_s,
            opened_ms=self._clock.monotonic_ms(),
        )
        call.join(waiter)
        self._open[receipt.key] = call
        return call

    def _after_death(
        self,
        stored: Receipt,
        request: ToolRequest,
        waiter: Waiter,
        tool: ToolSpec,
        provider: ProviderSpec,
    ) -> None:
        """A former owner sent this call and did not settle it: take it over when that is safe.

        The same instance at once (its store's lock proves that the former process is dead), a
        foreign lease after its full duration on our own clock (point 4 of the architecture).
        """
        call = self._opened(stored, request, waiter, tool, provider)
        lease = stored.lease
        wait_ms = 0
        if lease is not None and lease.instance != self._ownership.instance:
            expires = self._ownership.recovered_ms(call.partition) + lease.duration_ms
            wait_ms = max(0, expires - self._clock.monotonic_ms())
        task = asyncio.create_task(self._take_over(call, wait_ms / 1000))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_over(self, call: OpenCall, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        taken = receipts.take_over(
            call.receipt,
            idempotent=call.tool.idempotent,
            key_lifetime_ms=round(call.tool.key_lifetime_s * 1000),
            now_wall_ms=self._clock.wall_ms(),
        )
        log.info("receipt_taken_over", receipt=taken.key, state=taken.state, deaths=taken.deaths)
        if not self.holds(call):
            return
        call.receipt = taken
        if not taken.final:
            self._lanes.of(call.provider).offer(call)
        else:
            try:
                await self._store.put(call.partition, taken)
            except NotOwned:
                self.forget(call)
            else:
                self.settled(call)
