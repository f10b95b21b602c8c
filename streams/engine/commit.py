"""The consumer: offsets are committed up to the first delivered one whose work is open, never past.

Faust 0.15.3 commits past open work: the guard of the acked list's head tests `> 1` and is skipped
where nothing (or 0) is committed, so with 101-103 acked and 100 open it commits 104 (606 open, PR 707
unmerged); each rebalance drops what was acked before it commits, and what is acked later falls into
the same hole; `_committed_offset` advances even where the commit failed (316); `_add_gap` counts the
arriving record as a gap. All of that is replaced by `core/offsets.py`. Drop this when upstream has a
tracker of its own: tests/integration/engine/test_commit.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from faust.transport.drivers.aiokafka import Consumer
from faust.types import TP, Message
from mode import Service

from rowmill.streams.core.offsets import PartitionOffsets
from rowmill.streams.engine.consumer_thread import RoleConsumerThread
from rowmill.streams.engine.delivery import Delivery, RoleMessage
from rowmill.streams.engine.intake import QUEUE_LONG, Intake
from rowmill.streams.engine.producer import DeliveryFailed, StrictProducer

log = structlog.get_logger(__name__)

FETCH_TURN_S = 0.25
"""How long one look at the fetcher waits for records; a rebalance waits for its end."""

SLICE = 64
"""Records delivered before the loop gets a turn, and before the next partition has its turn."""


class RoleConsumer(Consumer):
    """Faust's aiokafka consumer with an offset tracker and a drain loop of its own.

    `begin` and `end` bracket an assignment; between them records are delivered. What Faust calls
    flow control, active, paused and buffered partitions is not used: a partition is paused in
    aiokafka, which then neither fetches it nor lets its leftovers delay the others.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trackers: dict[TP, PartitionOffsets[Delivery]] = {}
        self.committed: dict[TP, int] = {}
        self.assignment_number = 0
        self.fetching = asyncio.Event()
        self.looked_s = time.monotonic()
        self._fetched_s = time.monotonic()
        self._looking = False
        self._looked = asyncio.Event()
        self._paused: set[TP] = set()
        self._congested: set[TP] = set()
        self._commit_lock = asyncio.Lock()

    def _new_consumer_thread(self) -> RoleConsumerThread:
        return RoleConsumerThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def thread(self) -> RoleConsumerThread:
        """The thread that aiokafka's consumer runs in."""
        return cast(RoleConsumerThread, self._thread)

    # --- an assignment -------------------------------------------------------------------------

    async def begin(self, tps: set[TP]) -> None:
        """Seek, make trackers and start delivering `tps`.

        Without a commit a partition starts at its beginning, explicitly: aiokafka's
        `seek_to_committed` skips it. Nothing may still be looking for records: what a look that
        began earlier brings was fetched before the seek, and dropping it after the seek would lose
        it (Faust loses messages between the seek and the resume after a rebalance, 596).
        """
        self.fetching.clear()
        while self._looking:
            self._looked.clear()
            await self._looked.wait()
        positions, self.committed = await self._positions(tps)
        self.trackers = {tp: PartitionOffsets(positions[tp]) for tp in tps}
        self._paused.clear()
        self._congested.clear()
        self.looked_s = self._fetched_s = time.monotonic()
        await self.thread.seek_and_resume(positions)
        self.fetching.set()

    def end(self) -> None:
        """End the assignment: nothing is delivered any more, acknowledgements are ignored."""
        self.fetching.clear()
        self.assignment_number += 1
        for tp, tracker in self.trackers.items():
            self._drain_stock_acks(tp, tracker)
            tracker.close()
        self.trackers = {}
        self.committed = {}
        self._acked.clear()
        self._acked_index.clear()
        self._unacked_messages.clear()

    async def _positions(self, tps: set[TP]) -> tuple[dict[TP, int], dict[TP, int]]:
        found = await self.thread.offsets_of(tps)
        app: Any = self.app
        positions: dict[TP, int] = {}
        for tp in tps:
            wanted: int | None = None
            if app.start_at is not None:
                wanted = app.start_at(app.plain_name(tp.topic), tp.partition)
            if wanted is None:
                wanted = found.committed.get(tp, found.beginning[tp])
            if not found.beginning[tp] <= wanted <= found.end[tp]:
                log.warning(
                    "position_outside_log",
                    topic=tp.topic,
                    partition=tp.partition,
                    wanted=wanted,
                    beginning=found.beginning[tp],
                    end=found.end[tp],
                )
                found.committed.pop(tp, None)
                wanted = found.beginning[tp]
            positions[tp] = wanted
        return positions, found.committed

    # --- pause and resume ----------------------------------------------------------------------

    def pause(self, tp: TP) -> None:
        """Stop fetching `tp`; what was handed over still arrives. Idempotent, until `begin`."""
        if tp in self.trackers and tp not in self._paused:
            self._paused.add(tp)
            self.thread.set_paused(tp, True)

    def resume(self, tp: TP) -> None:
        """Fetch `tp` again."""
        if tp in self._paused:
            self._paused.discard(tp)
            if tp not in self._congested:
                self.thread.set_paused(tp, False)

    def _relieve(self, intake: Intake) -> None:
        """Stop fetching what agents do not take up, resume what they did: no topic holds another."""
        for tp in self.trackers:
            length = intake.queue_length(tp)
            if length > QUEUE_LONG and tp not in self._congested:
                self._congested.add(tp)
                self.thread.set_paused(tp, True)
            elif length <= QUEUE_LONG // 2 and tp in self._congested:
                self._congested.discard(tp)
                if tp not in self._paused:
                    self.thread.set_paused(tp, False)

    # --- what the watchdog asks ------------------------------------------------------------------

    def heads(self) -> list[Delivery]:
        """Return the first open delivery of each partition that has one."""
        return [head for tracker in self.trackers.values() if (head := tracker.head()) is not None]

    def count_from(self, now_s: float) -> None:
        """Forget how long nothing came: the process itself stood still until `now_s`."""
        self.looked_s = self._fetched_s = now_s

    def silent_s(self, now_s: float) -> float:
        """Seconds since a fetch of any partition returned; 0 where all are paused."""
        if not self.trackers or len(self._paused | self._congested) == len(self.trackers):
            self._fetched_s = now_s
        elif (fetched_s := self.thread.fetched_s()) is not None:
            self._fetched_s = max(self._fetched_s, fetched_s)
        return now_s - self._fetched_s

    # --- the drain loop ------------------------------------------------------------------------

    @Service.task
    async def _drain(self) -> None:
        """Hand fetched records to the agents' queues, all partitions in turns.

        Replaces Faust's Fetcher and `_drain_messages`, whose `wait_first` per record was a quarter of
        the cost of a hop. `getmany` is not used: it asks the Monitor for each record.
        """
        intake = cast(Intake, self.app.topics)
        while not self.should_stop:
            await self.fetching.wait()
            if not self.fetching.is_set():
                # Set and cleared before this task had its turn; a look now could outlive the seek.
                continue
            number = self.assignment_number
            self._looking = True
            try:
                records = await self.thread.look(FETCH_TURN_S)
            except ConsumerStoppedError:
                return
            finally:
                self._looking = False
                self._looked.set()
            self.looked_s = time.monotonic()
            # Records of an assignment that is over: the next one seeks, and reads them again.
            if records and self.fetching.is_set() and number == self.assignment_number:
                await self._deliver(intake, records, number)
            self._relieve(intake)

    async def _deliver(
        self, intake: Intake, records: dict[TopicPartition, list[Any]], number: int
    ) -> None:
        for tp, some in _in_turns(records):
            tracker = self.trackers.get(tp)
            deliver = intake.deliver_to(tp)
            if tracker is not None and deliver is not None:
                deliver(some, tracker, number)
            await asyncio.sleep(0)
            if number != self.assignment_number:
                return

    # --- acknowledging and committing ------------------------------------------------------------

    def ack(self, message: Message) -> bool:
        """Take an acknowledgement of Faust's own streams."""
        if message.acked:
            return False
        message.acked = True
        delivery = cast(RoleMessage, message).delivery
        return delivery._offsets.ack(delivery.offset)

    def _drain_stock_acks(self, tp: TP, tracker: PartitionOffsets[Delivery]) -> None:
        # Faust's Cython iterator inlines Consumer.ack and writes these by itself.
        for offset in self._acked.pop(tp, ()):
            tracker.ack(offset)
        self._acked_index.pop(tp, None)

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit each partition up to its first open offset, all records before it delivered.

        Returns True where the broker took a commit. A commit that fails advances nothing and is
        tried again. A delivery that failed stops the worker instead (the flush raises).
        """
        async with self._commit_lock:
            number = self.assignment_number
            wanted = self._committable()
            if not wanted:
                return False
            producer = cast(StrictProducer, self.app.producer)
            try:
                await producer.flush()
            except DeliveryFailed as error:
                await self.crash(error)
                return False
            if number != self.assignment_number or not await self._commit(wanted):
                return False
            self._note_committed(wanted)
            if number == self.assignment_number:
                self.committed.update(wanted)
            return True

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit now; what Faust commits by is never used."""
        return await self.commit()

    def _committable(self) -> dict[TP, int]:
        wanted = {}
        for tp, tracker in self.trackers.items():
            self._drain_stock_acks(tp, tracker)
            offset = tracker.committable()
            if offset > self.committed.get(tp, -1):
                wanted[tp] = offset
        return wanted

    def _note_committed(self, offsets: dict[TP, int]) -> None:
        app: Any = self.app
        for tp, offset in offsets.items():
            topic = app.plain_name(tp.topic)
            app.note("committed", topic=topic, partition=tp.partition, offset=offset)

    async def _commit(self, offsets: dict[TP, int]) -> bool:  # type: ignore[override]  # Mapping
        try:
            await self.thread.commit_offsets(offsets)
        except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
            await self.crash(error)
            return False
        except KafkaError as error:
            # A rebalance, or a coordinator that is away. What is not committed is read again.
            log.warning("commit_failed", error=repr(error), partitions=len(offsets))
            return False
        return True

    # --- what Faust does and this consumer does not ----------------------------------------------

    async def perform_seek(self) -> None:
        """Nothing: `begin` seeks."""

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Hand over to the app, with the trackers still there: Faust drops them first."""
        await self._on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Hand over to the app."""
        await cast(Any, self)._on_partitions_assigned(assigned, generation_id)

    async def verify_all_partitions_active(self) -> None:
        """Nothing: the watchdog looks."""

    async def on_stop(self) -> None:
        """Nothing: the app commits before its agents and stores stop (`Ownership.give_up`)."""


def _in_turns(records: dict[TopicPartition, list[Any]]) -> Iterator[tuple[TP, list[Any]]]:
    """Cut fetched records into slices, partitions in turns: 16,000 of one don't hold up the rest."""
    waiting = [(TP(tp.topic, tp.partition), some) for tp, some in records.items()]
    start = 0
    while waiting:
        for tp, some in waiting:
            yield tp, some[start : start + SLICE]
        start += SLICE
        waiting = [(tp, some) for tp, some in waiting if len(some) > start]
