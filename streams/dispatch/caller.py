"""The call: running is durable, then the request leaves, then the answer is made durable (R3, Q5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import structlog

from rowmill.errors import InfrastructureError, SecretMissing
from rowmill.streams.core import receipts
from rowmill.streams.core.identity import idempotency_key
from rowmill.streams.core.outcomes import (
    LEASE_LOST,
    Answered,
    FailureKind,
    Outcome,
    Refused,
    never_built,
)
from rowmill.streams.core.receipts import Failure, Lease, Receipt
from rowmill.streams.core.retries import GiveUp, RetryAt, next_step
from rowmill.streams.dispatch.calls import OpenCall, policy_of
from rowmill.streams.dispatch.claims import Claims
from rowmill.streams.dispatch.heartbeat import Heartbeat, LeaseLost
from rowmill.streams.dispatch.lanes import GATE_MS, Departure, Lane, Lanes
from rowmill.streams.dispatch.notes import CallNotes
from rowmill.streams.dispatch.owner import OwnerMail, Ownership, ReceiptStore
from rowmill.streams.engine.tables import NotOwned
from rowmill.streams.ports import Clock, NotSent, Provider, Send

log = structlog.get_logger(__name__)

DOOR_WAIT_MS_MAX = 1_000
"""A call that would wait for longer gives its lease back, and waits in its lane."""

_Next = int | Literal["settled", "left"]
"""Milliseconds until the next attempt; or the receipt is final and durable; or it is another's."""


class Caller:
    """Sends calls that their lane let out, one task each, and settles them."""

    def __init__(
        self,
        store: ReceiptStore,
        mail: OwnerMail,
        provider: Provider,
        ownership: Ownership,
        clock: Clock,
        *,
        lease_ms: int,
        bytes_max: int,
        new_id: Callable[[], str],
        chance: Callable[[], float],
        crash: Callable[[BaseException], None],
        notes: CallNotes,
    ) -> None:
        """`chance`: a random number in [0, 1) for jitter. `bytes_max`: of one answer (R9). `crash`
        ends the process: a call that failed in our own code must not hang its row unseen."""
        self._store = store
        self._mail = mail
        self._provider = provider
        self._ownership = ownership
        self._clock = clock
        self._lease_ms = lease_ms
        self._bytes_max = bytes_max
        self._new_id = new_id
        self._chance = chance
        self._crash = crash
        self._notes = notes
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent_calls: dict[OpenCall, Heartbeat] = {}

    def connect(self, claims: Claims, lanes: Lanes) -> None:
        """Name whom to tell of endings; they in turn hand calls to `send`."""
        self._claims = claims
        self._lanes = lanes

    def send(self, call: OpenCall) -> None:
        """Start one attempt of a call; its lane gave it a slot and a permit."""
        call.sending = True
        task = asyncio.create_task(self._run(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def lost(self, partitions: set[int]) -> None:
        """Park what was claimed in partitions that are given up, and has not left.

        At once, so that it goes with the last flush: a connection that takes seconds, or a wait at
        the door, would outlast it, and the next owner would count a send that never was.
        """
        for call, heartbeat in list(self._unsent_calls.items()):
            here = call.partition in partitions and self._claims.goes_on(call)
            if here and not call.left:
                self._park(call, heartbeat, reached=False, uses_attempt=False)

    async def drain(self, within_s: float) -> None:
        """Wait for the calls in flight to settle, `within_s` seconds at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def _run(self, call: OpenCall) -> None:
        lane = self._lanes.of(call.provider)
        try:
            step = await self._attempt(call, lane)
            call.sending = False
            if step == "settled":
                self._claims.settled(call)
            elif step == "left":
                self._claims.forget_unless_owned(call)
            else:
                self._claims.forget_unless_owned(call)
                self._claims.offer_later(call, step)
        except NotOwned:
            # The partition went to another owner, which the requests reach again; it sees the
            # running receipt and takes over under the same idempotency key.
            log.warning("call_left_to_next_owner", receipt=call.receipt.key, tool=call.tool.id)
            self._claims.forget(call)
        except InfrastructureError as error:
            self._crash(error)  # says by itself what is wrong, and where
        except Exception as error:
            log.exception("call_broke", receipt=call.receipt.key, tool=call.tool.id)
            self._crash(error)
        finally:
            self._unsent_calls.pop(call, None)
            lane.ended(left=call.left)

    async def _attempt(self, call: OpenCall, lane: Lane) -> _Next:
        """Send once, and make what came of it durable. Raises: NotOwned before the send."""
        if not self._claims.goes_on(call):
            return "left"
        if not self._ownership.owns(call.partition):
            # An epoch is raised before the calls of a former one are compared with what is stored.
            raise NotOwned("receipts", call.partition)
        stored = self._stored(call)
        if stored is not None and stored.final:
            call.receipt = stored  # R3: another owner settled it while the partition was away
            return "settled"
        if call.key_is_old(self._clock.monotonic_ms()):
            return await self._outlived(call)
        heartbeat = await self._claimed(call)
        if heartbeat is None or not self._claims.goes_on(call):
            return "left"
        lease = heartbeat.lease
        departure = await self._depart(call, lane, heartbeat)
        if departure is None:
            return self._unsent(call, heartbeat)
        try:
            outcome = await self._ask(call, heartbeat, departure)
        except NotSent:
            return self._unsent(call, heartbeat)
        finally:
            departure.close()
            self._unsent_calls.pop(call, None)
        if not call.left and call.receipt.lease is None:
            return GATE_MS  # parked as its partition was given up, before its connection was there
        self._notes.heard(call, lease, outcome)
        lane.heard(outcome)
        if not self._claims.goes_on(call):
            await self._hand_over(call, heartbeat.lease, outcome)
            return "left"
        if isinstance(outcome, Answered):
            receipt = receipts.complete(
                call.receipt, lease.id, outcome.output, self._clock.wall_ms()
            )
            return await self._settle(call, receipt, heartbeat)
        return await self._refused(call, lane, outcome, heartbeat)

    async def _claimed(self, call: OpenCall) -> Heartbeat | None:
        """Make it durable that a call will be sent. Returns: None for a batch that nobody waits for."""
        lease = self._ownership.lease(call.partition, self._new_id(), self._lease_ms)
        heartbeat = Heartbeat(
            lease, lambda: self._renew(call), self._clock, self._clock.monotonic_ms()
        )
        durable: list[asyncio.Future[Any]] = []
        if call.batch is not None:
            members = self._claims.batches.seal(call)
            if members is None:
                self._claims.forget(call)
                return None
            durable.append(members)
        if call.first_sent_ms is None:
            call.first_sent_ms = self._clock.monotonic_ms()
        now_wall_ms = self._clock.wall_ms()
        call.receipt = receipts.start(receipts.pick(call.receipt), lease, now_wall_ms)
        self._notes.claimed(call, lease, heartbeat.ends_ms)
        durable.append(self._store.put(call.partition, call.receipt))
        self._unsent_calls[call] = heartbeat
        for each in durable:
            await each
        self._notes.running(call, lease)
        return heartbeat

    async def _depart(self, call: OpenCall, lane: Lane, heartbeat: Heartbeat) -> Departure | None:
        """Wait at the lane's door; None where the call may not leave, or not soon.

        Compared right before the request leaves: writing may have taken long (a frozen process, a
        broker away), a successor may own the partition by now, and other calls want to leave too.
        """
        while self._claims.goes_on(call) and self._may_act(call, heartbeat):
            passed = lane.depart()
            if isinstance(passed, Departure):
                return passed
            if passed > DOOR_WAIT_MS_MAX:
                return None
            await asyncio.sleep(passed / 1000)
        return None

    async def _outlived(self, call: OpenCall) -> _Next:
        """Fail a call that waited longer than its key lives (Q7)."""
        await self._claims.end(call, receipts.outlive_key(call.receipt, self._clock.wall_ms()))
        return "left"

    async def _hand_over(self, call: OpenCall, lease: Lease, outcome: Outcome) -> None:
        """Nobody waits for this send any more; a paid answer goes to the present owner (R6)."""
        running = call.receipt
        if running.final or not isinstance(outcome, Answered):
            log.info("answer_came_twice", receipt=running.key)
            return
        now_ms = self._clock.wall_ms()
        receipt = receipts.complete(running, lease.id, outcome.output, now_ms)
        await self._send_to_owner(call, receipt, lease)

    async def _send_to_owner(self, call: OpenCall, receipt: Receipt, lease: Lease) -> None:
        batch = call.batch is not None
        for each in self._claims.batches.settlements(call, receipt) if batch else [receipt]:
            log.info("settled_by_owner", receipt=each.key, lease=lease.id)
            await self._mail.settle(call.partition, each, lease.id)

    def _unsent(self, call: OpenCall, heartbeat: Heartbeat) -> _Next:
        if not self._claims.goes_on(call):
            return "left"
        if call.receipt.lease is not None:
            self._park(call, heartbeat, reached=False, uses_attempt=False)
        return GATE_MS

    def _park(
        self, call: OpenCall, heartbeat: Heartbeat, *, reached: bool, uses_attempt: bool
    ) -> None:
        """Park, and make that known where the record can only be ours: the epoch is the lease's.

        Then whoever takes the call over need not wait for a lease, and counts no death (Q6). A
        partition that is being given up still takes it.
        """
        lease = heartbeat.lease
        call.receipt = receipts.park(
            call.receipt, lease.id, reached=reached, uses_attempt=uses_attempt
        )
        if call.receipt.sends == 0:
            call.first_sent_ms = None
        alive = self._ownership.gate() and not heartbeat.expired
        if alive and self._claims.goes_on(call):
            with suppress(NotOwned):
                if self._ownership.epoch(call.partition) == lease.epoch:
                    self._store.put(call.partition, call.receipt)

    async def _refused(
        self, call: OpenCall, lane: Lane, outcome: Refused, heartbeat: Heartbeat
    ) -> _Next:
        """Decide on a send that gave no answer: again, or failed."""
        step = self._after(call, outcome)
        if outcome.waits:
            self._hold(lane, outcome, step)
        if isinstance(step, RetryAt):
            self._park(call, heartbeat, reached=outcome.reached, uses_attempt=step.uses_attempt)
            return step.delay_ms
        message = step.message
        if step.kind is FailureKind.OUT_OF_CREDITS and outcome.status_code != 200:
            if self._claims.starts.held_back(call):
                # Another call has said so: this one bought nothing either, and its row only waits.
                self._park(call, heartbeat, reached=outcome.reached, uses_attempt=False)
                self._claims.starts.withhold(call)
                return "left"
            self._claims.starts.out_of_credits(
                call, f"{call.provider.id}: out of credits: {message}"
            )
        if step.kind in (FailureKind.TOO_LARGE, FailureKind.SECRET):
            message = f'receipt "{call.receipt.key}": {message}'
        receipt = receipts.fail(
            call.receipt,
            heartbeat.lease.id,
            Failure(step.kind, message, outcome.status_code),
            self._clock.wall_ms(),
            reached=outcome.reached,
        )
        return await self._settle(call, receipt, heartbeat)

    async def _settle(self, call: OpenCall, receipt: Receipt, heartbeat: Heartbeat) -> _Next:
        """Write a final receipt where we may, else hand it to the present owner (R6)."""
        running = call.receipt
        if self._may_act(call, heartbeat):
            call.receipt = receipt
            with suppress(NotOwned):
                await self._claims.keep(call, receipt)
                if self._ownership.gate():
                    self._notes.kept(receipt, heartbeat.lease.epoch)
                if self._may_act(call, heartbeat):
                    return "settled"
            # Writing took so long that a successor may own the partition: it decides, since what
            # was written here may be too late (a broker that was away, a frozen process).
            call.receipt = running
        await self._send_to_owner(call, receipt, heartbeat.lease)
        return "left"

    def _stored(self, call: OpenCall) -> Receipt | None:
        """Return the stored receipt where it is of this call's purchase. Raises: NotOwned."""
        stored = self._store.get(call.partition, call.receipt.key)
        if stored is None or stored.purchase != call.receipt.purchase:
            return None
        return stored

    def _may_act(self, call: OpenCall, heartbeat: Heartbeat) -> bool:
        """Whether a lease of this process is surely in force."""
        owned = self._ownership.surely_owns(call.partition, heartbeat.lease.epoch)
        return owned and not heartbeat.expired

    async def _renew(self, call: OpenCall) -> None:
        """Write the lease again, or tell the present owner that the call goes on."""
        if not self._claims.goes_on(call):
            return
        lease, sent_ms = call.receipt.lease, self._clock.monotonic_ms()
        if lease is None:
            return
        if self._ownership.surely_owns(call.partition, lease.epoch):
            await self._store.put(call.partition, call.receipt)
        else:
            await self._mail.renew(call.partition, call.receipt)
        self._notes.renewed(call.receipt, lease, sent_ms + lease.duration_ms)

    def _after(self, call: OpenCall, outcome: Refused) -> RetryAt | GiveUp:
        return next_step(
            policy_of(call),
            attempts_used=call.receipt.attempts,
            outcome=outcome,
            elapsed_ms=call.elapsed_ms(self._clock.monotonic_ms()),
            chance=self._chance(),
            booked_before=call.receipt.sends > 0,
        )

    def _hold(self, lane: Lane, outcome: Refused, step: RetryAt | GiveUp) -> None:
        """One 429 slows the whole lane (G2), also where its own call waits no longer."""
        delay_ms = step.delay_ms if isinstance(step, RetryAt) else outcome.retry_after_ms
        if delay_ms is not None:
            lane.hold(delay_ms, self._chance())
            self._notes.held(lane)

    async def _ask(self, call: OpenCall, heartbeat: Heartbeat, departure: Departure) -> Outcome:
        request = self._request(call, heartbeat, departure)
        try:
            return await heartbeat.keep(self._provider.call(request))
        except LeaseLost:
            return LEASE_LOST
        except SecretMissing as error:
            return never_built(str(error))

    def _leaves(self, call: OpenCall, heartbeat: Heartbeat, departure: Departure) -> bool:
        """Whether the request may leave now that its connection is there.

        A process that stands still after this, before its bytes are written, sends them once it goes
        on: that gap, of some 0.1 ms, is no code's to close (docs/guarantees.md).
        """
        now_ms = self._clock.monotonic_ms()
        # Connecting takes turns: its answer may have come by another way meanwhile.
        if call.key_is_old(now_ms) or not self._claims.goes_on(call):
            return False
        if not self._may_act(call, heartbeat):
            return False
        if not departure.leave(now_ms):
            return False
        call.left = True
        self._notes.sent(call, heartbeat.lease, now_ms)
        return True

    def _request(self, call: OpenCall, heartbeat: Heartbeat, departure: Departure) -> Send:
        receipt = call.receipt
        if receipt.purchase is None:
            raise receipts.IllegalTransition(f"receipt {receipt.key} is sent without a purchase")
        tool, question, bytes_max = call.tool, call.input, self._bytes_max
        if call.batch is not None:
            tool, question, bytes_max = self._claims.batches.request(call)
        return Send(
            provider=call.provider,
            tool=tool,
            input=question,
            idempotency_key=idempotency_key(receipt.key, receipt.purchase),
            timeout_s=call.timeout_s,
            bytes_max=bytes_max,
            may_leave=lambda: self._leaves(call, heartbeat, departure),
        )
