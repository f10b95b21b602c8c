"""From an assignment to the first event, and from a revoke to the last commit: the one sequence.

    assigned:  read changelogs -> raise epochs, acknowledged -> on_partitions_ready -> seek -> deliver
    revoked:   stop delivering -> on_partitions_lost -> flush -> commit -> close stores

Faust spreads this over app, conductor, consumer, table manager and recovery, whose tasks race: what
is delivered between the seek and the resume is lost (596), `on_recover` swallows exceptions, and
`stream_wait_empty` waits at a rebalance for messages that wait for another topic. Rebalances are
eager: every join revokes all partitions of all members, and the same may come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import structlog
from aiokafka import TopicPartition
from faust.types import TP

from rowmill.streams.core.epochs import next_epoch
from rowmill.streams.engine.commit import RoleConsumer
from rowmill.streams.engine.intake import Intake
from rowmill.streams.engine.producer import DeliveryFailed, StrictProducer
from rowmill.streams.engine.readback import READ_BACK_MS, ReadBack
from rowmill.streams.engine.recovery import Recovery, Standby
from rowmill.streams.engine.stores import PartitionStore
from rowmill.streams.engine.tables import DurableTable, OwnedPartition, Owner

if TYPE_CHECKING:
    from rowmill.streams.engine.app import RoleApp

log = structlog.get_logger(__name__)

SETTLE_WITHIN_S = 45
"""Below the time that a rebalance waits for its members (`app.REBALANCE_S`)."""

MEMBER_LOOK_S = 0.1

Hook = Callable[[set[int]], Awaitable[None]]


class Ownership:
    """Which partitions this process owns now, and since which epoch."""

    def __init__(self, app: RoleApp) -> None:
        self._app = app
        self.epochs: dict[int, int] = {}
        self.ready = asyncio.Event()
        self.was_ready = False
        self._taking: asyncio.Task[None] | None = None
        self._told: set[int] = set()
        self._stores: dict[TopicPartition, PartitionStore] = {}
        self._following: asyncio.Task[None] | None = None
        self._reading_back: asyncio.Task[None] | None = None
        self._read_back_from: dict[TopicPartition, int] = {}
        self._standby_stores: dict[TopicPartition, PartitionStore] = {}
        self._turn = asyncio.Lock()

    def owns(self, partition: int) -> bool:
        """True while the roles work on a partition.

        It ends before what is on its way is delivered: work that is begun then could not end here.
        """
        return partition in self._told

    async def assigned(self, tps: set[TP], generation: int) -> None:
        """Begin to take over `tps`; returns at once. The group's heartbeat waits for the return."""
        await self.revoked()
        self._taking = asyncio.get_running_loop().create_task(self._take_over(tps, generation))

    async def revoked(self) -> None:
        """Give everything up, committed as far as it goes. Idempotent."""
        async with self._turn:
            await self._end_tasks()
            self.ready.clear()
            consumer, intake = self._consumer, self._intake
            consumer.fetching.clear()
            intake.clear_queues()
            lost, self._told = self._told, set()
            if lost:
                self._app.note("given_up", partitions=sorted(lost))
                await self._tell(self._app.on_partitions_lost, lost)
                if not self._app.crashed:
                    await self._settle(consumer)
            consumer.end()
            intake.clear_queues()
            self._close_stores()
            self.epochs = {}

    async def _take_over(self, tps: set[TP], generation: int) -> None:
        try:
            partitions = {tp.partition for tp in tps}
            if tps:
                await self._recover(partitions)
                await self._until_member()
                await self._raise_epochs(partitions, generation)
                await self._read_what_came_before(partitions)
                await self._until_member()  # it may have taken long to be acknowledged
                self._told = set(partitions)
                for partition in sorted(partitions):
                    self._app.note(
                        "taken", partition=partition, epoch=self.epochs.get(partition, 0)
                    )
                await self._tell(self._app.on_partitions_ready, partitions)
                # Faust's own iterator skips events while this is suspended, as it is at start.
                self._app.flow_control.resume()
                await self._consumer.begin(tps)
            log.info("partitions_ready", partitions=sorted(partitions), epochs=self.epochs)
            self.was_ready = True
            self.ready.set()
            self._follow(self._standby_partitions() - partitions)
            if self._read_back_from:
                self._reading_back = asyncio.get_running_loop().create_task(self._read_back())
                self._reading_back.add_done_callback(self._followed)
            await self._app.on_rebalance_complete.send()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is ends the worker
            await self._app.crash(error)

    async def _recover(self, partitions: set[int]) -> None:
        self._open(partitions, self._stores)
        by_topic = self._by_changelog
        await Recovery(self._app.client_options, self._stores, by_topic).run()
        for tp, store in self._stores.items():
            table = by_topic[tp.topic]
            table.own(tp.partition, OwnedPartition(table.name, tp.partition, store, self._app.fail))
        self._stores.clear()

    async def _read_what_came_before(self, partitions: set[int]) -> None:
        """Recover again where a former owner's record came between the log's end and our epoch's
        beginning: for everybody else it counts."""
        if all(table.owned(one).contiguous for table in self._tables for one in partitions):
            return
        for table in self._tables:
            table.close()
        await self._recover(partitions)
        for table in self._tables:
            for partition in partitions:
                table.owned(partition).epoch = self.epochs[partition]

    async def _until_member(self) -> None:
        """Wait until the group surely has us: an assignment may come late (a process that stood still).

        An epoch that is raised then would fence the real owner out (tests/simulation, seed 102).
        """
        while not self._app.surely_member:
            await asyncio.sleep(MEMBER_LOOK_S)

    async def _raise_epochs(self, partitions: set[int], generation: int) -> None:
        """Begin an epoch of each partition, higher than any its changelogs tell of, and wait."""
        tables = self._tables
        waiting = []
        for partition in sorted(partitions) if tables else ():
            former = [table.last_owner(partition) for table in tables]
            last = max((owner.epoch for owner in former if owner), default=0)
            epoch = next_epoch(last, generation)
            self.epochs[partition] = epoch
            for table, owner in zip(tables, former, strict=True):
                ours = self._owner(epoch, owner, table.owned(partition).store.next_offset or 0)
                waiting.append(table.raise_epoch(partition, ours))
                if _wall_ms() - ours.taken_ms < READ_BACK_MS:
                    place = TopicPartition(table.changelog, partition)
                    self._read_back_from[place] = ours.taken_from
        await asyncio.gather(*waiting)

    def _owner(self, epoch: int, former: Owner | None, end: int) -> Owner:
        """Return this process as owner; it remembers when it took over from another instance."""
        instance = self._app.instance
        if former is None:
            return Owner(epoch, instance)
        if former.instance == instance:
            return Owner(epoch, instance, former.taken_ms, former.taken_from)
        return Owner(epoch, instance, _wall_ms(), end)

    async def _read_back(self) -> None:
        """Cover late records of former owners, until none can be on its way any more."""
        begin, self._read_back_from = self._read_back_from, {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_BACK_MS / 1000):
                await ReadBack(self._app.client_options, self._by_changelog, begin).run()

    async def _tell(self, hooks: list[Hook], partitions: set[int]) -> None:
        for hook in hooks:
            await hook(set(partitions))

    async def _settle(self, consumer: RoleConsumer) -> None:
        """Deliver what is on its way and commit. A failed delivery commits nothing.

        A broker that is away for longer than a rebalance waits ends this: the group goes on without
        this member, and what is not committed is read again by whoever has the partitions then.
        """
        try:
            async with asyncio.timeout(SETTLE_WITHIN_S):
                producer = cast(StrictProducer, self._app.producer)
                await producer.flush()
                await producer.flush()  # what the first brought answers to may have written more
                for table in self._tables:
                    table.store_acknowledged()
                await consumer.commit()
        except DeliveryFailed as error:
            log.error("not_committed", reason=str(error))
        except TimeoutError:
            log.error("not_committed", reason=f"no answer within {SETTLE_WITHIN_S} s")

    def _standby_partitions(self) -> set[int]:
        """Return the partitions that the assignor wants a copy of here."""
        if not self._tables:
            return set()
        return {tp.partition for tp in self._app.assignor.assigned_standbys()}

    def _follow(self, partitions: set[int]) -> None:
        if not partitions:
            return
        self._open(partitions, self._standby_stores)
        standby = Standby(self._app.client_options, self._standby_stores, self._by_changelog)
        self._following = asyncio.get_running_loop().create_task(standby.run())
        self._following.add_done_callback(self._followed)

    def _followed(self, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._app.fail(error)

    async def _end_tasks(self) -> None:
        for task in (self._taking, self._following, self._reading_back):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._taking = self._following = self._reading_back = None
        self._read_back_from = {}

    def _open(self, partitions: set[int], stores: dict[TopicPartition, PartitionStore]) -> None:
        for table in self._tables:
            for partition in sorted(partitions):
                store = PartitionStore(table.path / str(partition))
                stores[TopicPartition(table.changelog, partition)] = store

    def _close_stores(self) -> None:
        for table in self._tables:
            table.close()
        for stores in (self._stores, self._standby_stores):
            for store in stores.values():
                store.close()
            stores.clear()

    @property
    def _consumer(self) -> RoleConsumer:
        return cast(RoleConsumer, self._app.consumer)

    @property
    def _intake(self) -> Intake:
        return cast(Intake, self._app.topics)

    @property
    def _by_changelog(self) -> dict[str, DurableTable]:
        return {table.changelog: table for table in self._tables}

    @property
    def _tables(self) -> list[DurableTable]:
        return list(cast("dict[str, DurableTable]", self._app.tables).values())


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
