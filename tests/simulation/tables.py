"""The simulated table: as `streams/engine/tables.py` does it, on the simulated broker's changelog."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from rowmill.streams.engine.tables import NotOwned
from rowmill.topics.catalogue import RECEIPTS_CHANGELOG
from tests.simulation.kafka import Record

if TYPE_CHECKING:
    from tests.simulation.process import Process

CHANGELOG = RECEIPTS_CHANGELOG.name
EPOCH_KEY = "!epoch"

Store = dict[str, tuple[int, bytes | None]]
"""Of each key, the epoch and value that count."""


class Owned:
    """One partition: what is durable, and what is on its way. `read_to`: the log's end at recovery;
    `first`: where this owner's first record stands."""

    def __init__(self, store: Store, read_to: int) -> None:
        self.store = store
        self.read_to = read_to
        self.first = -1
        self.overlay: dict[str, tuple[object, bytes | None]] = {}
        self.open: dict[object, tuple[str, asyncio.Future[None]]] = {}


class SimTable:
    """A table of one process. `changelog`: its topic."""

    def __init__(self, process: Process, changelog: str) -> None:
        self._process = process
        self.changelog = changelog
        self.owned: dict[int, Owned] = {}

    def recovered(self, partition: int) -> Owned:
        """Return what a new owner finds: a record counts unless a higher epoch began before it."""
        store: Store = {}
        owner = 0
        log = self._process.world.broker.log(self.changelog, partition)
        for record in log:
            if record.epoch >= owner:
                store[record.key] = record.epoch, record.value
                owner = record.epoch if record.key == EPOCH_KEY else owner
        return Owned(store, len(log))

    def get(self, partition: int, key: str) -> bytes | None:
        """Read an entry. Raises: NotOwned."""
        owned = self._owned(partition)
        if key in owned.overlay:
            return owned.overlay[key][1]
        return owned.store.get(key, (0, None))[1]

    def put(self, partition: int, key: str, value: bytes) -> asyncio.Future[None]:
        """Write an entry. Raises: NotOwned."""
        return self._write(partition, key, value)

    def delete(self, partition: int, key: str) -> asyncio.Future[None]:
        """Delete an entry. Raises: NotOwned."""
        return self._write(partition, key, None)

    def scan(self, partition: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Iterate entries by prefix. Raises: NotOwned."""
        owned = self._owned(partition)
        laid = {key: value for key, (_, value) in owned.store.items()}
        laid |= {key: value for key, (_, value) in owned.overlay.items()}
        for key, value in sorted(laid.items()):
            if key.startswith(prefix) and key != EPOCH_KEY and value is not None:
                yield key, value

    def close(self) -> None:
        """End all ownerships; who waits for a write hears so."""
        owned, self.owned = self.owned, {}
        for partition, one in owned.items():
            for _, future in one.open.values():
                if not future.done():
                    future.set_exception(NotOwned(self.changelog, partition))
                    future.exception()

    def _owned(self, partition: int) -> Owned:
        found = self.owned.get(partition)
        if found is None:
            raise NotOwned(self.changelog, partition)
        return found

    def _write(self, partition: int, key: str, value: bytes | None) -> asyncio.Future[None]:
        owned, app = self._owned(partition), self._process.app
        epoch, write = app.epochs[partition], object()
        future: asyncio.Future[None] = self._process.loop.create_future()
        owned.overlay[key] = write, value
        owned.open[write] = key, future
        ack = app.enqueue(self.changelog, partition, Record(key, value, epoch))
        ack.add_done_callback(lambda done: self._acknowledged(owned, write, value, epoch, done))
        return future

    def _acknowledged(
        self,
        owned: Owned,
        write: object,
        value: bytes | None,
        epoch: int,
        done: asyncio.Future[Any],
    ) -> None:
        if owned.first < 0:
            owned.first = done.result().offset
        key, future = owned.open.pop(write)
        owned.store[key] = epoch, value
        if key in owned.overlay and owned.overlay[key][0] is write:
            del owned.overlay[key]
        if not future.done():
            future.set_result(None)


def epoch_record(instance: str, read_to: int) -> bytes:
    """Return the value of an epoch's first record."""
    return msgspec.json.encode({"instance": instance, "taken_from": read_to})


def last_epoch(store: dict[str, Any]) -> int:
    """Return the highest epoch that a recovered store tells of."""
    return int(store[EPOCH_KEY][0]) if EPOCH_KEY in store else 0
