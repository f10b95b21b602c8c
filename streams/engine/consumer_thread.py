"""The thread of aiokafka's consumer: it keeps heartbeating while the loop of the role is busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiokafka
import structlog
import uvloop
from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.consumer.group_coordinator import (
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, RequestTimedOutError
from aiokafka.structs import OffsetAndMetadata
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP
from mode.threads import WorkerThread

from rowmill.topics.connection import REQUEST_TIMEOUT_MS

JOIN_MARGIN_S = 5

log = structlog.get_logger(__name__)

T = TypeVar("T")

IDLE_AFTER_S = 2.0
IDLE_FETCH_WAIT_MS = 500
"""A worker that got nothing for a while lets its fetches wait longer: three idle roles with a wait of
20 ms took a fifth of a core. A record ends the wait at once. Only a partition that is not in the
fetch under way has to wait for it, and while nothing comes all are in it."""


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """Where partitions stand: the group's commits (absent: none), first and end offset."""

    committed: dict[TP, int]
    beginning: dict[TP, int]
    end: dict[TP, int]


class EndingThread(WorkerThread):
    """A thread that does not keep a process from ending, however its end goes wrong."""

    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True


class RoleConsumerThread(AIOKafkaConsumerThread):
    """Faust's consumer thread with the fetch wait as a setting and an explicit leave.

    Calls from the role's loop go straight to the thread's loop. Faust's method queue has two workers,
    each of which costs three tasks a call, and a look that waits takes one of them.
    """

    Worker = EndingThread

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, thread_loop=uvloop.new_event_loop(), **kwargs)
        self.heartbeat_ok_s = time.monotonic()
        self._busy_s = time.monotonic()

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        app: Any = self.app
        conf = app.conf
        # A table needs all topics of the app co-partitioned; without one Faust takes round robin.
        self._assignor = app.assignor if app.tables else RoundRobinPartitionAssignor
        consumer = aiokafka.AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            group_instance_id=conf.consumer_group_instance_id or None,
            partition_assignment_strategy=[self._assignor],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            # One that is idle for longer leaves the group and never comes back (aiokafka 1187).
            max_poll_interval_ms=int(conf.broker_max_poll_interval * 1000),
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            # Faust hard-codes 1,500 ms: a hop through an idle topic took that long.
            fetch_max_wait_ms=app.fetch_wait_ms,
            check_crcs=conf.broker_check_crcs,
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
            **app.client_options,
        )
        _let_joins_wait(consumer._client, conf.broker_rebalance_timeout + JOIN_MARGIN_S)
        watch_group(consumer._client, self._note_member)
        return consumer

    def _note_member(self, sent_s: float) -> None:
        self.heartbeat_ok_s = max(self.heartbeat_ok_s, sent_s)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Hold the new partitions back until the app has recovered and seeks them."""
        try:
            self._ensure_consumer().pause(*(_plain(tp) for tp in assigned))
            await super().on_partitions_assigned(assigned, generation_id)
        except Exception as error:
            # aiokafka logs what a listener raises, and goes on without it.
            await self.crash(error)
            raise

    async def in_thread(self, call: Coroutine[Any, Any, T]) -> T:
        """Run `call` on the thread's loop and wait for it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self.thread_loop))

    async def look(self, timeout_s: float) -> dict[TopicPartition, list[Any]]:
        """Return fetched records of all partitions, waiting up to `timeout_s` for the first.

        Raises: aiokafka.errors.ConsumerStoppedError.
        """
        return await self.in_thread(self._look(timeout_s))

    async def _look(self, timeout_s: float) -> dict[TopicPartition, list[Any]]:
        consumer = self._ensure_consumer()
        fetcher = consumer._fetcher
        if consumer._closed or fetcher._closed:
            raise ConsumerStoppedError()
        with fetcher._subscriptions.fetch_context():
            found: dict[TopicPartition, list[Any]] = await fetcher.fetched_records(
                (), timeout=timeout_s, max_records=None
            )
        self._pace_fetches(fetcher, bool(found))
        return found

    def _pace_fetches(self, fetcher: Any, found: bool) -> None:
        now_s = time.monotonic()
        if found:
            self._busy_s = now_s
        app: Any = self.app
        idle = now_s - self._busy_s > IDLE_AFTER_S
        fetcher._fetch_max_wait_ms = IDLE_FETCH_WAIT_MS if idle else app.fetch_wait_ms
        fetcher._fetch_min_bytes = 1 if idle else app.fetch_min_bytes

    async def offsets_of(self, tps: set[TP]) -> LogOffsets:
        """Return commits, first and end offsets of `tps`. Raises: aiokafka.errors.KafkaError."""
        return await self.in_thread(self._offsets_of([_plain(tp) for tp in tps]))

    async def _offsets_of(self, tps: list[TopicPartition]) -> LogOffsets:
        consumer = self._ensure_consumer()
        committed = await consumer._coordinator.fetch_committed_offsets(tps)
        return LogOffsets(
            {_faust(tp): found.offset for tp, found in committed.items()},
            {_faust(tp): offset for tp, offset in (await consumer.beginning_offsets(tps)).items()},
            {_faust(tp): offset for tp, offset in (await consumer.end_offsets(tps)).items()},
        )

    async def seek_and_resume(self, positions: Mapping[TP, int]) -> None:
        """Read on at `positions`, and let the fetcher go."""
        await self.in_thread(self._seek_and_resume(positions))

    async def _seek_and_resume(self, positions: Mapping[TP, int]) -> None:
        consumer = self._ensure_consumer()
        for tp, offset in positions.items():
            consumer.seek(_plain(tp), offset)
        consumer.resume(*(_plain(tp) for tp in positions))

    async def commit_offsets(self, offsets: Mapping[TP, int]) -> None:
        """Commit. Raises: aiokafka.errors.KafkaError; IllegalStateError where not assigned."""
        consumer = self._ensure_consumer()
        await self.in_thread(
            consumer.commit(
                {_plain(tp): OffsetAndMetadata(offset, "") for tp, offset in offsets.items()}
            )
        )

    def set_paused(self, tp: TP, paused: bool) -> None:
        """Pause or resume fetching `tp`, soon; nothing where it is not assigned any more."""

        def apply() -> None:
            consumer = self._ensure_consumer()
            self._busy_s = time.monotonic()
            try:
                (consumer.pause if paused else consumer.resume)(_plain(tp))
            except IllegalStateError:
                log.debug("not_assigned", topic=tp.topic, partition=tp.partition)

        self.thread_loop.call_soon_threadsafe(apply)

    def leave(self) -> None:
        """Leave the group when the consumer stops.

        A static member sends no LeaveGroup (`_maybe_leave_group`), so that a restart keeps its
        partitions; at a planned stop they would wait for the session to run out.
        """
        if self._consumer is not None and self._consumer._coordinator is not None:
            self._consumer._coordinator._group_instance_id = None

    def fetched_s(self) -> float | None:
        """When the last fetch of any partition returned (monotonic), None before the first."""
        subscriptions: SubscriptionState = self._ensure_consumer()._subscription
        subscription = subscriptions.subscription
        if subscription is None or subscription.assignment is None:
            return None
        assignment = subscription.assignment
        stamps = [assignment.state_value(tp).timestamp or 0 for tp in assignment.tps]
        latest_ms = max(stamps, default=0)
        # aiokafka stamps fetches with the wall clock.
        return time.monotonic() - (time.time() - latest_ms / 1000) if latest_ms else None


def _let_joins_wait(client: Any, wait_s: float) -> None:
    """Give the group's connection time for a join, which is answered once every member has joined.

    Its other requests are bounded where they are sent.
    """
    connect = client._get_conn

    async def patient(node_id: Any, *, group: Any = ConnectionGroup.DEFAULT, **more: Any) -> Any:
        connection = await connect(node_id, group=group, **more)
        if connection is not None and group is ConnectionGroup.COORDINATION:
            connection._request_timeout = wait_s
        return connection

    client._get_conn = patient


def watch_group(client: Any, taken: Callable[[float], None]) -> None:
    """Tell when the group surely had us as a member, by the monotonic clock (the gate, point 3).

    That is when a heartbeat or the sync of a join was *sent* which it took. Not when its answer is
    read: a process that stood still in between believed itself a fresh owner of partitions which
    another one had by then (tests/simulation, seed 102). By the answer itself: after a broker's
    restart aiokafka may want to join again for a while although each heartbeat is taken;
    "rebalance in progress" counts as taken in aiokafka and is no success here.
    """
    send = client.send

    async def watched(node_id: Any, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        if group is not ConnectionGroup.COORDINATION:
            return await send(node_id, request, group=group)
        sent_s = time.monotonic()
        answer = send(node_id, request, group=group)
        if not isinstance(request, JoinGroupRequest | SyncGroupRequest):
            answer = _in_time(answer)
        response = await answer
        if isinstance(request, HeartbeatRequest | SyncGroupRequest) and response.error_code == 0:
            taken(sent_s)
        return response

    client.send = watched


async def _in_time(answer: Coroutine[Any, Any, T]) -> T:
    """Await a coordinator's answer. Raises: RequestTimedOutError, upon which aiokafka looks for another."""
    try:
        return await asyncio.wait_for(answer, REQUEST_TIMEOUT_MS / 1000)
    except TimeoutError:
        raise RequestTimedOutError from None


def _plain(tp: TP) -> TopicPartition:
    return TopicPartition(tp.topic, tp.partition)


def _faust(tp: TopicPartition) -> TP:
    return TP(tp.topic, tp.partition)
