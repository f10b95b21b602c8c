"""The simulated engine: what the role uses of it, with the sequence of `engine/ownership.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.core.epochs import next_epoch
from rowmill.streams.core.offsets import PartitionOffsets
from rowmill.streams.engine.app import GATE_MARGIN_S
from rowmill.streams.engine.delivery import Delivery, NotedDelivery
from rowmill.streams.engine.ownership import MEMBER_LOOK_S, SETTLE_WITHIN_S
from rowmill.streams.engine.tables import NotOwned
from rowmill.topics.catalogue import TOOL_REQUESTS, TopicDefinition
from tests.simulation.kafka import GROUP, RECOVERY, Record, Way
from tests.simulation.service import settle
from tests.simulation.shape import SESSION_S
from tests.simulation.tables import EPOCH_KEY, SimTable, epoch_record, last_epoch

if TYPE_CHECKING:
    from tests.simulation.process import Process

BEAT_S = 3.0
COMMIT_S = 0.5
FETCHED = 10

NO_SECRETS = EnvironmentSecrets({})


class SimApp:
    """The engine's surface as the role uses it, with the sequence of `engine/ownership.py`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.instance = process.instance
        self.note = process.note
        self.secrets = NO_SECRETS
        self.conf = SimpleNamespace(id="rowmill-dispatch")
        self.stopping = False
        self.on_partitions_ready: list[Callable[[set[int]], Awaitable[None]]] = []
        self.on_partitions_lost: list[Callable[[set[int]], Awaitable[None]]] = []
        self.before_start: list[Any] = []
        self.before_stop: list[Any] = []
        self.after_stop: list[Any] = []
        self.head_is_waiting: Callable[[Any], bool] | None = None
        self.epochs: dict[int, int] = {}
        self._told: set[int] = set()
        self._generation = 0
        self._heartbeat_ok_s = 0.0
        self._tables: list[SimTable] = []
        self._trackers: dict[int, PartitionOffsets[Delivery]] = {}
        self._committed: dict[int, int] = {}
        self._assignment = 0
        self._delivering = False
        self._commit_lock = asyncio.Lock()
        self._open: set[asyncio.Future[Any]] = set()
        self._taking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._joining = False
        self._leaving = False
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what the role uses --------------------------------------------------------------------------

    def durable_table(self, name: str, definition: TopicDefinition, **_: Any) -> SimTable:
        """Declare a table."""
        self._tables.append(SimTable(process=self.process, changelog=definition.name))
        return self._tables[-1]

    def produce(
        self,
        topic: TopicDefinition,
        *,
        key: str,
        value: bytes | None,
        partition: int | None = None,
        headers: Any = None,
    ) -> asyncio.Future[Any]:
        """Send a record."""
        assert partition is not None
        return self.enqueue(topic.name, partition, Record(key, value))

    def enqueue(self, topic: str, partition: int, record: Record) -> asyncio.Future[Any]:
        """Send a record; the future resolves with where it stands."""
        process, broker, way = self.process, self.process.world.broker, (topic, partition)
        future: asyncio.Future[Any] = process.loop.create_future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)

        def arrive() -> None:
            offset = broker.append(topic, partition, record)
            process.world.appended(topic, partition, record)
            process.link.answer(way, lambda: acknowledged(offset))

        def acknowledged(offset: int) -> None:
            self.note("written", topic=topic, partition=partition, offset=offset, key=record.key)
            if not future.done():
                future.set_result(SimpleNamespace(topic=topic, partition=partition, offset=offset))

        process.link.send(way, arrive)
        return future

    def owns(self, partition: int) -> bool:
        """Whether the role works on it."""
        return partition in self._told

    def epoch(self, partition: int) -> int:
        """Return this owner's epoch. Raises: NotOwned."""
        if partition not in self.epochs:
            raise NotOwned("rowmill-dispatch", partition)
        return self.epochs[partition]

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the sending of the last heartbeat that the group took."""
        return self.process.loop.time() - self._heartbeat_ok_s

    @property
    def surely_member(self) -> bool:
        """Whether nobody else can own its partitions now."""
        return self.heartbeat_age_s < SESSION_S - GATE_MARGIN_S

    def fail(self, error: BaseException) -> None:
        """The role can't go on: a fault of its code, here."""
        self.process.world.failures.append(error)

    # --- its life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group, and beat."""
        settings = self.process.world.settings
        self.note(
            "started",
            role="dispatch",
            instance=self.instance,
            session_ms=round(settings.session_timeout_s * 1000),
            lease_ms=round(settings.lease_s * 1000),
        )
        self._rejoin()
        self._beat()
        self._commit_later()

    async def stop(self) -> None:
        """A planned stop: calls that are open end first, then it leaves."""
        self.stopping = True
        for hook in self.before_stop:
            await hook()
        self._leaving = True
        await self._revoked()
        process = self.process
        process.link.send(GROUP, lambda: process.world.broker.leave(process))
        self.note("stopped")
        process.world.ended(process)

    def spawn(self, work: Any) -> None:
        """Run work beside."""
        task = self.process.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _rejoin(self) -> None:
        process = self.process
        self._joining = True
        process.link.send(GROUP, lambda: process.world.broker.join(process))

    def _beat(self) -> None:
        process, sent_s, generation = self.process, self.process.loop.time(), self._generation
        if not self._joining:
            process.link.send(GROUP, lambda: self._beat_arrives(sent_s, generation))
        process.loop.call_later(BEAT_S, self._beat)

    def _beat_arrives(self, sent_s: float, generation: int) -> None:
        answer = self.process.world.broker.heartbeat(self.process, generation)
        self.process.link.answer(GROUP, lambda: self._beaten(answer, sent_s, generation))

    def _beaten(self, answer: str, sent_s: float, generation: int) -> None:
        if answer == "ok":
            self._heartbeat_ok_s = max(self._heartbeat_ok_s, sent_s)
        elif not self._joining and generation == self._generation and not self._leaving:
            self._joining = True
            self.spawn(self._join_again())

    async def _join_again(self) -> None:
        await self._revoked()
        self._rejoin()

    # --- ownership: the one sequence -------------------------------------------------------------------

    def assigned(self, share: set[int], generation: int, synced_s: float) -> None:
        """Begin to take over. `synced_s`: own clock when the group surely had it as a member."""
        self._joining = False
        self._generation = generation
        self._heartbeat_ok_s = max(self._heartbeat_ok_s, synced_s)
        if not self._leaving:
            self.spawn(self._assigned(share, generation))

    async def _assigned(self, share: set[int], generation: int) -> None:
        await self._revoked()
        if generation != self._generation or self._joining:
            return  # aiokafka begins no other round before this one has been told
        self._taking = self.process.loop.create_task(self._take_over(share, generation))

    async def _take_over(self, share: set[int], generation: int) -> None:
        for partition in sorted(share):
            await asyncio.sleep(self.process.chance.choice((0.001, 0.05, 0.4)))
            for table in self._tables:
                recovered = partial(table.recovered, partition)
                table.owned[partition] = await self._asked(RECOVERY, recovered)
        await self._until_member()
        waiting = []
        for partition in sorted(share):
            last = max(last_epoch(table.owned[partition].store) for table in self._tables)
            self.epochs[partition] = next_epoch(last, generation)
            for table in self._tables:
                value = epoch_record(self.instance, table.owned[partition].read_to)
                waiting.append(table.put(partition, EPOCH_KEY, value))
        await asyncio.gather(*waiting)
        for table in self._tables:
            for partition in sorted(share):
                await self._read_what_came_before(table, partition)
        await self._until_member()
        self._told = set(share)
        for partition in sorted(share):
            self.note("taken", partition=partition, epoch=self.epochs[partition])
        for hook in self.on_partitions_ready:
            await hook(set(share))
        self._committed = await self._asked(GROUP, lambda: self._committed_of(share))
        self._trackers = {one: PartitionOffsets(self._committed[one]) for one in share}
        self._delivering = True
        for partition in share:
            self._fetch(partition, self._assignment)

    async def _read_what_came_before(self, table: SimTable, partition: int) -> None:
        owned = table.owned[partition]
        if owned.first != owned.read_to:
            again = await self._asked(RECOVERY, partial(table.recovered, partition))
            owned.store = again.store

    def _committed_of(self, share: set[int]) -> dict[int, int]:
        committed = self.process.world.broker.committed
        return {one: committed.get((TOOL_REQUESTS.name, one), 0) for one in sorted(share)}

    async def _asked(self, way: Way, read: Callable[[], Any]) -> Any:
        """Ask the broker, and wait for its answer."""
        link, answer = self.process.link, self.process.loop.create_future()

        def arrive() -> None:
            found = read()
            link.answer(way, lambda: settle(answer, found))

        link.send(way, arrive)
        return await answer

    async def _until_member(self) -> None:
        while not self.surely_member:
            await asyncio.sleep(MEMBER_LOOK_S)

    async def _revoked(self) -> None:
        async with self._turn:
            if self._taking is not None:
                self._taking.cancel()
                await asyncio.wait([self._taking])
                self._taking = None
            self._delivering = False
            lost, self._told = self._told, set()
            if lost:
                self.note("given_up", partitions=sorted(lost))
                for hook in self.on_partitions_lost:
                    await hook(set(lost))
                await self._settle()
            self._assignment += 1
            for tracker in self._trackers.values():
                tracker.close()
            self._trackers = {}
            for table in self._tables:
                table.close()
            self.epochs = {}

    async def _settle(self) -> None:
        try:
            async with asyncio.timeout(SETTLE_WITHIN_S):
                await self._flush()
                await self._flush()
                await self._commit()
        except TimeoutError:
            pass

    async def _flush(self) -> None:
        if self._open:
            await asyncio.wait(set(self._open))
            await asyncio.sleep(0)

    # --- records in, commits out -----------------------------------------------------------------------

    def _fetch(self, partition: int, assignment: int) -> None:
        tracker = self._trackers.get(partition)
        if tracker is not None and assignment == self._assignment:
            begin = tracker.next
            process = self.process
            process.link.send(
                ("fetch", partition),
                lambda: process.world.wait_for_records(
                    partition, begin, lambda: self._fetched(partition, begin, assignment)
                ),
            )

    def _fetched(self, partition: int, begin: int, assignment: int) -> None:
        log = self.process.world.broker.log(TOOL_REQUESTS.name, partition)
        records = list(enumerate(log[begin : begin + FETCHED], begin))
        self.process.link.answer(
            ("fetch", partition), lambda: self._deliver(partition, records, assignment)
        )

    def _deliver(self, partition: int, records: list[tuple[int, Record]], assignment: int) -> None:
        tracker = self._trackers.get(partition)
        if tracker is None or assignment != self._assignment or not self._delivering:
            return
        for offset, record in records:
            delivery = NotedDelivery(
                self.note, TOOL_REQUESTS.name, partition, offset, record.key.encode(),
                record.value, [], 0, assignment, tracker,
            )  # fmt: skip
            tracker.deliver(offset, delivery)
            self.process.dispatch.requests.offer(delivery)
        self._fetch(partition, assignment)

    def _commit_later(self) -> None:
        self.process.loop.call_later(COMMIT_S, self._commit_now)

    def _commit_now(self) -> None:
        if self._committable():
            self.spawn(self._commit())
        self._commit_later()

    def _committable(self) -> dict[int, int]:
        return {
            one: offset
            for one, tracker in self._trackers.items()
            if (offset := tracker.committable()) > self._committed.get(one, -1)
        }

    async def _commit(self) -> None:
        async with self._commit_lock:
            assignment, wanted = self._assignment, self._committable()
            if not wanted:
                return
            await self._flush()
            if assignment != self._assignment:
                return
            process, generation = self.process, self._generation
            places = {(TOOL_REQUESTS.name, one): offset for one, offset in wanted.items()}
            taken = partial(process.world.broker.commit, process, generation, places)
            if not await self._asked(GROUP, taken):
                return
            for one, offset in wanted.items():
                self.note("committed", topic=TOOL_REQUESTS.name, partition=one, offset=offset)
                if assignment == self._assignment:
                    self._committed[one] = offset
