"""The engine's surface in memory, for unit tests of the roles: nothing here decides anything."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec

from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.engine.tables import NotOwned
from rowmill.streams.ports import Note, silent
from rowmill.topics import codec
from rowmill.topics.catalogue import TopicDefinition
from rowmill.topics.contracts import Contract

CANARY = "canary/s3cret+v4lue"
"""The secret that roles on the fake engine know as CANARY."""


@dataclass(eq=False)
class FakeDelivery:
    """A delivery that remembers whether it was acknowledged."""

    value: bytes | None
    partition: int = 0
    offset: int = 0
    topic: str = "topic"
    key: bytes | None = b"key"
    live: bool = True
    acked: bool = False

    def ack(self) -> None:
        """Acknowledge, while live."""
        self.acked = self.acked or self.live

    def ack_after(self, durable: asyncio.Future[Any]) -> None:
        """Acknowledge once a future resolves."""
        durable.add_done_callback(self.ack_if)

    def ack_if(self, done: asyncio.Future[Any]) -> None:
        """Acknowledge where a future that is done has succeeded."""
        if done.exception() is None:
            self.ack()


def delivered(record: Contract, partition: int = 0, offset: int = 0) -> FakeDelivery:
    """Return a record as an agent gets it."""
    return FakeDelivery(codec.encode(record), partition, offset)


@dataclass
class FakeApp:
    """Takes what roles produce. `hold` keeps acknowledgements back until `release`."""

    owned: set[int] = field(default_factory=lambda: set(range(8)))
    produced: dict[str, list[SimpleNamespace]] = field(default_factory=lambda: defaultdict(list))
    raw: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    paused: set[int] = field(default_factory=set)
    failures: list[BaseException] = field(default_factory=list)
    hold: bool = False
    note: Note = silent
    epoch_number: int = 1
    instance: str = "me"
    secrets: EnvironmentSecrets = field(
        default_factory=lambda: EnvironmentSecrets({"ROWMILL_SECRET_CANARY": CANARY})
    )
    _waiting: list[asyncio.Future[Any]] = field(default_factory=list)
    conf: Any = field(default_factory=lambda: SimpleNamespace(id="rowmill-test"))

    def produce(
        self,
        topic: TopicDefinition,
        *,
        key: str,
        value: bytes,
        partition: int | None = None,
        headers: Any = None,
    ) -> asyncio.Future[Any]:
        """Take a record; it is acknowledged at once unless `hold`."""
        self.raw[topic.name].append(value)
        self.produced[topic.name].append(
            SimpleNamespace(record_key=key, to_partition=partition, **msgspec.json.decode(value))
        )
        return self._future()

    def _future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.hold:
            self._waiting.append(future)
        else:
            future.set_result(None)
        return future

    def release(self) -> None:
        """Acknowledge what was held back."""
        self.hold = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(None)

    def epoch(self, partition: int) -> int:
        """The epoch of an owned partition."""
        if partition not in self.owned:
            raise NotOwned("test", partition)
        return self.epoch_number

    def owns(self, partition: int) -> bool:
        """Whether it is owned."""
        return partition in self.owned

    def pause(self, topic: TopicDefinition, partition: int) -> None:
        """Note it."""
        self.paused.add(partition)

    def resume(self, topic: TopicDefinition, partition: int) -> None:
        """Note it."""
        self.paused.discard(partition)

    def fail(self, error: BaseException) -> None:
        """Note it."""
        self.failures.append(error)


class FakeTable:
    """A durable table whose writes are durable when `app` acknowledges."""

    def __init__(self, app: FakeApp, derive: Any = None) -> None:
        self.app = app
        self.derive = derive
        self.entries: dict[int, dict[str, bytes]] = defaultdict(dict)
        self.writes: list[tuple[str, bytes]] = []

    def get(self, partition: int, key: str) -> bytes | None:
        """Read an entry of an owned partition."""
        self.app.epoch(partition)
        return self.entries[partition].get(key)

    def put(self, partition: int, key: str, value: bytes) -> asyncio.Future[None]:
        """Write an entry of an owned partition."""
        self.app.epoch(partition)
        self.entries[partition][key] = value
        self.writes.append((key, value))
        if self.derive is not None:
            self.entries[partition].update(self.derive(key, value))
        return self.app._future()

    def delete(self, partition: int, key: str) -> asyncio.Future[None]:
        """Delete an entry of an owned partition."""
        self.app.epoch(partition)
        self.entries[partition].pop(key, None)
        return self.app._future()

    def scan(self, partition: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Iterate entries by prefix."""
        for key, value in sorted(self.entries[partition].items()):
            if key.startswith(prefix):
                yield key, value


async def settle(times: int = 5) -> None:
    """Let tasks and callbacks that are ready run."""
    for _ in range(times):
        await asyncio.sleep(0)
