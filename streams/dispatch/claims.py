"""Claims: the receipt table on one side, the core's rules on the other (R1-R3, Q4).

One worker at a time sees all requests of a receipt, so a claim needs no lock: what is open here is
joined, what is final is answered, what a dead owner left is taken over, and the rest is bought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core import receipts
from rowmill.streams.core.receipts import Ask, Existing, Receipt
from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.batches import Batches
from rowmill.streams.dispatch.calls import OpenCall, Waiter, ask_again, waiter_of
from rowmill.streams.dispatch.lanes import GATE_MS, Lanes
from rowmill.streams.dispatch.limits import RunLimits
from rowmill.streams.dispatch.notes import CallNotes
from rowmill.streams.dispatch.owner import OwnerMail, Ownership, ReceiptStore
from rowmill.streams.dispatch.starts import Starts
from rowmill.streams.dispatch.takeovers import Takeovers
from rowmill.streams.dispatch.waits import Waits
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.engine.tables import NotOwned
from rowmill.streams.ports import Clock
from rowmill.topics.contracts import Forget, Renewal, Settlement, ToolRequest

log = structlog.get_logger(__name__)


class Claims:
    """Decides what each request becomes. `new_id` makes random ids."""

    def __init__(
        self,
        store: ReceiptStore,
        lanes: Lanes,
        answers: Answers,
        mail: OwnerMail,
        ownership: Ownership,
        clock: Clock,
        new_id: Callable[[], str],
        notes: CallNotes,
        limits: RunLimits,
        bytes_max: int,
    ) -> None:
        """`bytes_max`: of one answer (R9)."""
        self._store = store
        self._lanes = lanes
        self._answers = answers
        self._mail = mail
        self._ownership = ownership
        self._clock = clock
        self._new_id = new_id
        self._notes = notes
        self._open: dict[str, OpenCall] = {}
        self.batches = Batches(store, lanes, ownership, clock, new_id, self._open, bytes_max)
        self.starts = Starts(
            lanes, answers, ownership, limits, self.batches, self._open, self.forget
        )
        self._settling: dict[str, asyncio.Future[None]] = {}
        self.takeovers = Takeovers(self, lanes, mail, ownership, clock, new_id, notes)
        self._waits = Waits(answers, ownership, clock, self.holds)

    def __len__(self) -> int:
        """Calls open in this process."""
        return len(self._open)

    def waits(self, delivery: Delivery) -> bool:
        """True where a live call of this process will acknowledge that request."""
        return any(delivery is held for call in self._open.values() for held in call.deliveries())

    def ask(
        self, delivery: Delivery, request: ToolRequest, tool: ToolSpec, provider: ProviderSpec
    ) -> None:
        """Answer a request, or let it wait for the purchase that will.

        One that comes while its partition is given up is left to whoever reads it next.
        """
        if not self._ownership.owns(delivery.partition):
            return
        if self._waits_for_settling(
            request.receipt, delivery, lambda: self.ask(delivery, request, tool, provider)
        ):
            return
        waiter = waiter_of(
            request,
            delivery,
            self._clock.monotonic_ms(),
            lambda: self.ask(delivery, request, tool, provider),
        )
        ask = self._ask(request, waiter, tool)
        call = self._open.get(request.receipt)
        if call is None:
            stored = self._store.get(delivery.partition, request.receipt)
            if stored is None or stored.final:
                self._decide(stored, ask, request, waiter, tool, provider)
                return
            call = self._opened(stored, request, delivery.partition, tool, provider)
            self.takeovers.go_on(call)
        if receipts.joins(call.receipt, ask):
            call.join(waiter)
        else:
            call.later.append(waiter)
        self._waits.begin(call, waiter)

    def settled(self, call: OpenCall) -> None:
        """Answer everybody who waits for a call whose final receipt is durable. Raises: NotOwned."""
        if call.batch is not None:
            for member, after_ms in self.batches.settled(call):
                if member.receipt.final:
                    self.settled(member)
                else:
                    self.offer_later(member, after_ms)
            return
        self.forget(call)
        epoch = self._ownership.epoch(call.partition)
        for waiter in call.waiters.values():
            self._answers.give(call.receipt, waiter, epoch)
        ask_again(call.later)

    def keep(self, call: OpenCall, receipt: Receipt) -> asyncio.Future[Any]:
        """Store the final receipt of a call, or of all that it stands for. Raises: NotOwned."""
        if call.batch is not None:
            return self.batches.keep(call, receipt)
        return self._store.put(call.partition, receipt)

    def forget(self, call: OpenCall) -> None:
        """Drop an open call without an answer: its requests come again to the present owner."""
        if self.holds(call):
            del self._open[call.receipt.key]

    def forget_unless_owned(self, call: OpenCall) -> None:
        """Leave a call that is not being sent to whoever owns its partition now."""
        if not self._ownership.owns(call.partition):
            self.forget(call)

    def lost(self, partitions: set[int]) -> None:
        """Release what was not sent in partitions that went to another owner (R11)."""
        self._lanes.drop(partitions)
        for call in list(self._open.values()):
            if call.partition in partitions and not call.sending:
                self.forget(call)

    def came_back(self, partitions: set[int]) -> None:
        """Leave calls in flight that another owner took further while the partition was away.

        Its send may be in flight too: retrying ours beside it would send one purchase twice.
        """
        for call in list(self._open.values()):
            if call.partition in partitions:
                stored = self._store.get(call.partition, call.receipt.key)
                known = (call.receipt.purchase, call.receipt.lease)
                if stored is None or (stored.purchase, stored.lease) != known:
                    log.info("call_taken_further", receipt=call.receipt.key, tool=call.tool.id)
                    self.forget(call)

    def holds(self, call: OpenCall) -> bool:
        """True while that call is open here: it was not left to another owner meanwhile."""
        return self._open.get(call.receipt.key) is call

    def goes_on(self, call: OpenCall) -> bool:
        """True while that call may still be sent, renewed and settled: no answer is known yet."""
        return self.holds(call) and call.receipt.key not in self._settling

    def renewed(self, delivery: Delivery, renewal: Renewal) -> None:
        """A live former owner works on: its lease is waited for anew (R4)."""
        delivery.ack()
        call = self._open.get(renewal.receipt)
        lease = call.receipt.lease if call is not None else None
        if call is not None and lease is not None and lease.id == renewal.lease:
            call.foreign_until_ms = self._clock.monotonic_ms() + renewal.duration_ms

    def settled_late(self, delivery: Delivery, settlement: Settlement) -> None:
        """Take an answer that came to a former owner, or to us while we could not write (R6)."""
        key = settlement.receipt.key
        if self._waits_for_settling(key, delivery, lambda: self.settled_late(delivery, settlement)):
            return
        call = self._open.get(key)
        known = call.receipt if call is not None else self._store.get(delivery.partition, key)
        settled = None
        if known is not None:
            settled = receipts.settle_late(known, settlement.receipt, settlement.lease)
        if settled is None:
            log.info("late_settlement_changes_nothing", receipt=key)
            delivery.ack()
            return
        log.info("settled_late", receipt=key, state=settled.state)
        if call is not None:
            self._lanes.withdraw(call)
        # Until it is durable nobody is answered, and no attempt of ours may write over it.
        durable = self._settling[key] = self._store.put(delivery.partition, settled)
        delivery.ack_after(durable)
        epoch = self._ownership.epoch(delivery.partition)
        durable.add_done_callback(lambda done: self._late_is_durable(done, call, settled, epoch))

    def forgotten(self, delivery: Delivery, wish: Forget) -> None:
        """Delete a final receipt; an open one is left alone.

        Whoever left it open may have sent it: without its receipt it would be bought again.
        """
        key = wish.receipt
        if self._waits_for_settling(key, delivery, lambda: self.forgotten(delivery, wish)):
            return
        stored = self._store.get(delivery.partition, key)
        if key in self._open or not (stored is None or stored.final):
            log.warning("open_receipt_not_forgotten", receipt=key)
            delivery.ack()
            return
        delivery.ack_after(self._store.delete(delivery.partition, key))

    def expire(self, partition: int, key: str, before_wall_ms: int) -> asyncio.Future[None] | None:
        """Delete a receipt that settled before that time, unless it is being asked for.

        Returns: a future of its being durable, None where it stays. Raises: NotOwned.
        """
        if key in self._open or key in self._settling:
            return None
        stored = self._store.get(partition, key)
        if stored is None or not stored.settled_before(before_wall_ms):
            return None
        return self._store.delete(partition, key)

    def _late_is_durable(
        self,
        done: asyncio.Future[None],
        call: OpenCall | None,
        settled: Receipt,
        epoch: int,
    ) -> None:
        self._settling.pop(settled.key, None)
        if done.cancelled() or done.exception():
            return
        self._notes.kept(settled, epoch)
        if call is not None and self.holds(call):
            call.receipt = settled
            self.settled(call)

    def _waits_for_settling(self, key: str, delivery: Delivery, again: Callable[[], None]) -> bool:
        """Say whether a record comes while its receipt is being settled; it is taken up after that."""
        settling = self._settling.get(key)
        if settling is None:
            return False
        settling.add_done_callback(
            lambda _: (
                again() if delivery.live and self._ownership.owns(delivery.partition) else None
            )
        )
        return True

    def _decide(
        self,
        stored: Receipt | None,
        ask: Ask,
        request: ToolRequest,
        waiter: Waiter,
        tool: ToolSpec,
        provider: ProviderSpec,
    ) -> None:
        receipt, answer = receipts.claim(stored, ask, purchase=self._new_id())
        if isinstance(answer, Existing):
            epoch = self._ownership.epoch(waiter.delivery.partition)
            self._answers.give(receipt, waiter, epoch)
        else:
            call = self._opened(receipt, request, waiter.delivery.partition, tool, provider)
            call.join(waiter)
            replaced = None if stored is None else stored.purchase
            self.starts.begin(call, replaced)

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
        partition: int,
        tool: ToolSpec,
        provider: ProviderSpec,
    ) -> OpenCall:
        first_ms = receipt.first_sent_wall_ms
        if first_ms is not None:
            age_ms = max(0, self._clock.wall_ms() - first_ms)
            first_ms = self._clock.monotonic_ms() - age_ms
        call = OpenCall(
            receipt=receipt,
            partition=partition,
            tool=tool,
            provider=provider,
            input=request.input,
            timeout_s=request.timeout_s or tool.timeout_s,
            first_sent_ms=first_ms,
        )
        self._open[receipt.key] = call
        return call

    async def end(self, call: OpenCall, receipt: Receipt) -> None:
        """Write a final receipt that no send brought, and answer with it.

        Once it is durable a successor may own the partition, and send (a frozen process, a broker
        that was away): nobody is told before this process is surely the owner still.
        """
        partition = call.partition
        try:
            epoch = self._ownership.epoch(partition)
            await self.keep(call, receipt)
            self._notes.kept(receipt, epoch)
            while self.goes_on(call) and not self._ownership.surely_owns(partition, epoch):
                if not self._ownership.owns(partition):
                    self.forget(call)
                    return
                await asyncio.sleep(GATE_MS / 1000)
            if self.goes_on(call):
                call.receipt = receipt
                self.settled(call)
        except NotOwned:
            self.forget(call)

    def offer_later(self, call: OpenCall, after_ms: int) -> None:
        """Let a parked call sleep (Q6)."""
        asyncio.get_running_loop().call_later(after_ms / 1000, self._come_back, call)

    def _come_back(self, call: OpenCall) -> None:
        """A parked call wakes up, unless its partition went to another owner meanwhile."""
        if self.goes_on(call) and call.receipt.state == "queued":
            self.starts.offer(call)
