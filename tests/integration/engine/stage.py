"""The test's side of puppets: start them, talk to them, end them; and a look at the broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from rowmill.settings import Settings
from rowmill.topics.catalogue import TopicDefinition
from rowmill.topics.connection import client_options
from tests.kit.until import until_sync

SCRIPT = Path(__file__).with_name("puppet.py")
WITHIN_S = 60


class PuppetProcess:
    """One puppet. Events are kept in order; `wait` looks at those since the last command."""

    def __init__(self, settings: Settings, name: str, role: str = "rows", **env: str) -> None:
        self.store = settings.home / name
        self.events: list[dict[str, Any]] = []
        self._log = settings.home / f"{name}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), role, str(self.store)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment(settings), **env},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b'{"event"'):
                self.events.append(json.loads(line))
            else:
                with self._log.open("ab") as log:
                    log.write(line)

    @property
    def log(self) -> str:
        """What it logged."""
        return self._log.read_text("utf-8", "replace")

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return its events of one kind."""
        return [found for found in self.events if found["event"] == event]

    def wait(self, event: str, *, after: int = 0, within_s: float = WITHIN_S, **more: Any) -> Any:
        """Return the first event of a kind with these fields, from place `after` on."""

        def found() -> Any:
            for one in self.events[after:]:
                if one["event"] == event and all(one.get(k) == v for k, v in more.items()):
                    return one
            if self.process.poll() is not None and not self._reader.is_alive():
                raise AssertionError(
                    f"{event} never came; exit {self.process.poll()}: {self.log[-3000:]}"
                )
            return None

        return until_sync(found, within_s=within_s)

    def ready(self, within_s: float = WITHIN_S) -> Self:
        """Wait until it is ready."""
        self.wait("READY", within_s=within_s)
        return self

    def tell(self, do: str, **command: Any) -> int:
        """Send a command; returns the place in the events from which its answer comes."""
        assert self.process.stdin is not None
        place = len(self.events)
        self.process.stdin.write(json.dumps({"do": do, **command}).encode() + b"\n")
        self.process.stdin.flush()
        return place

    def ask(self, do: str, answer: str | None = None, **command: Any) -> Any:
        """Send a command and return the event that answers it."""
        place = self.tell(do, **command)
        return self.wait(answer or do, after=place)

    def delivered(self, topic: str = "rows.input") -> list[tuple[int, int]]:
        """Return (partition, offset) of what was delivered of a topic, in order."""
        return [
            (one["place"][1], one["place"][2])
            for one in self.of("delivered")
            if one["place"][0] == topic
        ]

    def kill_9(self) -> None:
        """End it without a chance to write anything."""
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def stop(self, within_s: float = WITHIN_S) -> int:
        """End it as an operator would; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(within_s)
        self._reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill_9()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def environment(settings: Settings) -> dict[str, str]:
    """Return `ROWMILL_*` for a process that must run with `settings`."""
    names = [
        "home",
        "kafka",
        "topic_prefix",
        "partitions",
        "session_timeout_s",
        "heartbeat_s",
        "commit_interval_s",
        "producer_linger_ms",
        "loop_lag_max_s",
    ]
    return {f"ROWMILL_{name.upper()}": str(getattr(settings, name)) for name in names}


async def feed(
    settings: Settings,
    topic: TopicDefinition,
    keys: list[str],
    partition: int = 0,
    value: bytes = b"{}",
) -> None:
    """Write records to a partition."""
    producer = AIOKafkaProducer(**client_options(settings), linger_ms=5)
    await producer.start()
    try:
        name = settings.topic_prefix + topic.name
        for key in keys:
            await producer.send(name, value, key=key.encode(), partition=partition)
    finally:
        await producer.stop()


async def write(
    settings: Settings,
    topic: TopicDefinition,
    partition: int,
    key: str,
    value: bytes | None,
    epoch: int,
) -> int:
    """Write one changelog record as an owner of `epoch` would; returns its offset."""
    producer = AIOKafkaProducer(**client_options(settings))
    await producer.start()
    try:
        headers = [("rowmill_epoch", str(epoch).encode())]
        name = settings.topic_prefix + topic.name
        sent = await producer.send_and_wait(
            name, value, key=key.encode(), partition=partition, headers=headers
        )
        return int(sent.offset)
    finally:
        await producer.stop()


async def read(settings: Settings, topic: TopicDefinition, partition: int = 0) -> list[Any]:
    """Return all records of a partition."""
    consumer = AIOKafkaConsumer(**client_options(settings), auto_offset_reset="earliest")
    await consumer.start()
    try:
        tp = TopicPartition(settings.topic_prefix + topic.name, partition)
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        consumer.seek(tp, (await consumer.beginning_offsets([tp]))[tp])
        found: list[Any] = []
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return found
    finally:
        await consumer.stop()


async def committed(settings: Settings, topic: TopicDefinition, partition: int = 0) -> int | None:
    """Return what the rows group has committed of a partition."""
    admin = AIOKafkaAdminClient(**client_options(settings))
    await admin.start()
    try:
        group = f"{settings.topic_prefix}rowmill-rows"
        tp = TopicPartition(settings.topic_prefix + topic.name, partition)
        found = await admin.list_consumer_group_offsets(group)
        return found[tp].offset if tp in found and found[tp].offset >= 0 else None
    finally:
        await admin.close()


def committed_now(settings: Settings, topic: TopicDefinition, partition: int = 0) -> int | None:
    """As `committed`, for tests without a loop."""
    return asyncio.run(committed(settings, topic, partition))


Start = Callable[..., PuppetProcess]


def puppets(settings: Settings) -> Iterator[Start]:
    """Yield what starts puppets with `settings`, and end all of them afterwards."""
    started: list[PuppetProcess] = []

    def start(name: str = "w0", role: str = "rows", **env: str) -> PuppetProcess:
        started.append(PuppetProcess(settings, name, role, **env))
        return started[-1]

    yield start
    for one in started:
        one.__exit__(None, None, None)
