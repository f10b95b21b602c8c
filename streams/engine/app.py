"""The Faust app of a role, made safe: what the roles use of the engine.

Faust stays for agents, streams, the consumer group, the co-partitioned assignor and the life of
services; consumer, producer, conductor, streams and tables are the engine's, put in through Faust's
own seams (`_new_transport`, the settings `Stream` and `TableManager`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, cast

import faust
from faust.transport.drivers.aiokafka import Transport
from faust.types import TP
from mode import CrashingSupervisor

from rowmill.settings import Settings
from rowmill.streams.engine.commit import RoleConsumer
from rowmill.streams.engine.delivery import Delivery, RoleMessage
from rowmill.streams.engine.directory import DataDirectory
from rowmill.streams.engine.intake import Intake
from rowmill.streams.engine.ownership import Hook, Ownership
from rowmill.streams.engine.producer import Headers, StrictProducer
from rowmill.streams.engine.run import run
from rowmill.streams.engine.stream import RoleStream
from rowmill.streams.engine.tables import Derive, DurableTable, NotOwned, Refresh, Tables
from rowmill.streams.ports import Note, Secrets, silent
from rowmill.topics.catalogue import CATALOGUE, TopicDefinition
from rowmill.topics.connection import client_options

__all__ = ["Delivery", "DurableTable", "NotOwned", "RoleApp", "role_app", "run"]

Role = Literal["rows", "dispatch", "sink"]

BATCH_BYTES = 256 << 10
REQUEST_BYTES_MAX = 1_000_000
"""Largest record, bytes: below the broker's default `message.max.bytes` (1,048,588)."""
PARTITION_FETCH_BYTES = 512 << 10
POLL_INTERVAL_MAX_S = 2_000_000
"""A consumer idle for longer leaves its group and never comes back (aiokafka 1187)."""
REBALANCE_S = 60
GATE_MARGIN_S = 2.0
"""Before a session can end at the broker, its owner has stopped to act: the margin covers the way of
the heartbeat, its answer, and the check itself."""


class RoleTransport(Transport):
    """Faust's aiokafka transport with the engine's parts."""

    Consumer = RoleConsumer
    Producer = StrictProducer
    Conductor = Intake


class RoleApp(faust.App):
    """The app of one role in one process. Made by `role_app`, run by `run`.

    `fetch_wait_ms`, `fetch_min_bytes`: a fetch of a busy worker ends after that long, or with that
    much; a role without hurry raises both before it runs, and fetches less often.
    """

    def __init__(
        self,
        id: str,
        settings: Settings,
        directory: DataDirectory,
        secrets: Secrets,
        note: Note = silent,
        **options: Any,
    ) -> None:
        super().__init__(id, **options)
        self.secrets = secrets
        self.note = note
        self.settings = settings
        self.directory = directory
        self.client_options: dict[str, Any] = client_options(settings)
        self.fetch_wait_ms = settings.fetch_wait_ms
        self.fetch_min_bytes = 1
        self.before_start: list[Callable[[], Awaitable[None]]] = []
        self.before_stop: list[Callable[[], Awaitable[None]]] = []
        self.after_stop: list[Callable[[], Awaitable[None]]] = []
        self.stopping = False
        self.on_partitions_ready: list[Hook] = []
        self.on_partitions_lost: list[Hook] = []
        self.start_at: Callable[[str, int], int | None] | None = None
        self.head_is_waiting: Callable[[Delivery], bool] | None = None
        self.ownership = Ownership(self)
        self._crashing: set[asyncio.Task[None]] = set()

    # --- what roles use --------------------------------------------------------------------------

    def raw_topic(self, topic: TopicDefinition) -> faust.TopicT:
        """Return the topic for an agent: bytes keys and values, the prefix applied."""
        return self.topic(
            self.wire_name(topic),
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            internal=False,
        )

    def delivery(self, event: faust.EventT[Any]) -> Delivery:
        """Return what an agent got as an event of `stream.noack().events()`."""
        return cast(RoleMessage, event.message).delivery

    def durable_table(
        self,
        name: str,
        definition: TopicDefinition,
        *,
        derive: Derive | None = None,
        refresh: Refresh | None = None,
    ) -> DurableTable:
        """Declare a table over changelog `definition`, before the app runs."""
        table = DurableTable(self, name, definition, derive, refresh)
        self.tables.add(table)  # type: ignore[arg-type]  # ours, not a Faust collection
        return table

    def produce(
        self,
        topic: TopicDefinition,
        *,
        key: str,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[Any]:
        """Enqueue a record at once and return the future of the broker's acknowledgement.

        It resolves with `topic`, `partition` and `offset`. `partition` None: murmur2 of the key.
        Records of a partition keep the order of the calls. A delivery that fails stops the worker
        before any later commit. Raises: RecordTooLarge (nothing stops), DeliveryFailed (after one).
        """
        name = self.wire_name(topic)
        return self.strict_producer.enqueue(name, key.encode(), value, partition, headers)

    def pause(self, topic: TopicDefinition, partition: int) -> None:
        """Stop fetching a partition; what is fetched still arrives. Ends with the assignment."""
        self.role_consumer.pause(TP(self.wire_name(topic), partition))

    def resume(self, topic: TopicDefinition, partition: int) -> None:
        """Fetch a paused partition again. Idempotent."""
        self.role_consumer.resume(TP(self.wire_name(topic), partition))

    def owns(self, partition: int) -> bool:
        """True from `on_partitions_ready` until `on_partitions_lost` begins."""
        return self.ownership.owns(partition)

    def epoch(self, partition: int) -> int:
        """Return this owner's epoch of a partition. Raises: NotOwned."""
        found = self.ownership.epochs.get(partition)
        if found is None:
            raise NotOwned(self.conf.id, partition)
        return found

    @property
    def instance(self) -> str:
        """Random id of the data directory: the same after a restart, no other process has it."""
        return self.directory.instance

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the sending of the last heartbeat that the group took (monotonic)."""
        return time.monotonic() - self.role_consumer.thread.heartbeat_ok_s

    @property
    def surely_member(self) -> bool:
        """Whether nobody else can own this process's partitions now (point 3 of the architecture)."""
        return self.heartbeat_age_s < self.settings.session_timeout_s - GATE_MARGIN_S

    # --- names -----------------------------------------------------------------------------------

    def wire_name(self, topic: TopicDefinition) -> str:
        """Return the topic's name in the cluster: prefix and name."""
        return self.settings.topic_prefix + topic.name

    def plain_name(self, wire_name: str) -> str:
        """Return the name in the catalogue."""
        return wire_name.removeprefix(self.settings.topic_prefix)

    # --- the parts -------------------------------------------------------------------------------

    @property
    def strict_producer(self) -> StrictProducer:
        """The producer."""
        return cast(StrictProducer, self.producer)

    @property
    def role_consumer(self) -> RoleConsumer:
        """The consumer."""
        return cast(RoleConsumer, self.consumer)

    def fail(self, error: BaseException) -> None:
        """Stop the worker for `error`, from code that can't wait. The first one counts."""
        if self.crashed or self._crashing:
            return
        task = asyncio.get_running_loop().create_task(self.crash(error))
        self._crashing.add(task)
        task.add_done_callback(self._crashing.discard)

    def _new_transport(self) -> RoleTransport:
        return RoleTransport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> RoleTransport:
        return RoleTransport(self.conf.broker_producer, self)

    def on_init_dependencies(self) -> Any:
        """Return the services to start: Faust's, without the Monitor that counts each event."""
        return self.boot_strategy.server()

    async def on_started(self) -> None:
        """Know the partitions of what roles produce to, then start the app's own tasks."""
        known = {self.wire_name(topic) for topic in CATALOGUE}
        known |= {
            table.changelog for table in cast("dict[str, DurableTable]", self.tables).values()
        }
        await self.strict_producer.learn(sorted(known))
        await super().on_started()

    # --- rebalances: one sequence, in Ownership ----------------------------------------------------

    async def _on_partitions_revoked(self, revoked: set[TP]) -> None:
        if not self.should_stop:
            await self._or_crash(self.ownership.revoked())

    async def _on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        if not self.should_stop:
            self._update_assignment(assigned)
            await self._or_crash(self._take(assigned, generation_id))

    async def _take(self, assigned: set[TP], generation: int) -> None:
        await self.topics.on_partitions_assigned(assigned)
        await self.ownership.assigned(assigned, generation)

    async def _or_crash(self, step: Awaitable[None]) -> None:
        try:
            await step
        except Exception as error:  # noqa: BLE001 - whatever it is ends the worker
            await self.crash(error)

    async def _stop_consumer(self) -> None:
        """Give the partitions up, committed, and leave the group: an operator waits for no session."""
        if self._consumer is None:
            return
        try:
            await self.ownership.revoked()
        finally:
            if not self.crashed:
                self.role_consumer.thread.leave()

    async def _producer_flush(self, logger: Any) -> None:
        """Nothing: giving up flushes."""

    def on_rebalance_start(self) -> None:
        """Note it; Faust's sensors are not there."""
        self.rebalancing = True
        self.rebalancing_count += 1

    def on_rebalance_return(self) -> None:
        """Nothing to note."""

    def on_rebalance_end(self) -> None:
        """Note it."""
        self.rebalancing = False


def _quieten() -> None:
    for chatty in ("aiokafka", "faust", "mode"):
        # aiokafka builds a record per send at DEBUG, a tenth of the CPU, even if none is printed.
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # A commit that takes longer than its interval is no news.
    logging.getLogger("mode.timers").setLevel(logging.ERROR)


def role_app(
    role: Role,
    settings: Settings,
    *,
    store: Path,
    secrets: Secrets,
    standbys: int = 0,
    note: Note = silent,
) -> RoleApp:
    """Make the app of a role; its id, and the group's, is `{prefix}rowmill-{role}`.

    `standbys`: how many other members keep a copy of each partition's stores. `secrets`: what no
    record may carry. `note`: where its history goes.

    `store` is the data directory of this process: locked here, until the process ends or `run`
    returns. Raises: DirectoryTaken naming the process that has it (exit code 3), DirectoryUnusable,
    TlsFilesUnusable.
    """
    _quieten()
    directory = DataDirectory(store)
    servers = ";".join(f"kafka://{server.strip()}" for server in settings.bootstrap.split(","))
    return RoleApp(
        f"{settings.topic_prefix}rowmill-{role}",
        settings,
        directory,
        secrets,
        note,
        broker=servers,
        datadir=str(store / "faust"),
        store="memory://",
        autodiscover=False,
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=standbys,
        TableManager=Tables,
        Stream=RoleStream,
        agent_supervisor=CrashingSupervisor,
        # Rows wait for another topic of the same app: waiting for them at a rebalance is for ever.
        stream_wait_empty=False,
        stream_buffer_maxsize=0,
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.heartbeat_s,
        broker_rebalance_timeout=REBALANCE_S,
        broker_request_timeout=max(40.0, settings.session_timeout_s),
        broker_max_poll_interval=POLL_INTERVAL_MAX_S,
        broker_commit_interval=settings.commit_interval_s,
        consumer_max_fetch_size=PARTITION_FETCH_BYTES,
        consumer_auto_offset_reset="earliest",
        # A restart within the session keeps its partitions: at work after 2.0 s instead of 9.8 s.
        consumer_group_instance_id=f"{role}-{directory.instance}",
        producer_acks=-1,
        producer_linger=settings.producer_linger_ms / 1000,
        producer_max_batch_size=BATCH_BYTES,
        producer_max_request_size=REQUEST_BYTES_MAX,
    )
