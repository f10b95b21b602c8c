"""Tables whose writes are durable before anyone is told: the changelog first, then the store.

A write goes to the changelog and into a memory overlay that only this owner reads; once the broker
has acknowledged it, entry and changelog offset enter RocksDB in one batch, together with all others
acknowledged by then. Faust does it the other way round and persists the offset in a callback of its
own: killed in between, the store is ahead of the changelog, or recovery skips an entry that was
never written. So Faust's tables are not used; the app, the assignor and the changelog's names are
(docs/decisions/0001-own-tables-behind-fausts-seams.md).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog
from faust.tables.manager import TableManager

from rowmill.errors import InfrastructureError, RowmillError
from rowmill.streams.engine.producer import StrictProducer
from rowmill.streams.engine.stores import Entry, PartitionStore
from rowmill.topics.catalogue import TopicDefinition

log = structlog.get_logger(__name__)

Derive = Callable[[str, bytes], Iterable[tuple[str, bytes]]]
"""Entries that follow from an entry and are kept locally only, in the same batch as it."""

Refresh = Callable[[int, str, bytes], bytes]
"""(partition, key, value) -> the value to write again, where an entry holds more than its own."""

EPOCH_KEY = "!epoch"
EPOCH_HEADER = "rowmill_epoch"
SCAN_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a partition since when: the value of `!epoch`.

    `taken_ms`: wall clock when this instance took over from another one, and `taken_from`: where
    the changelog ended then; 0 and -1 where there was no other.
    """

    epoch: int
    instance: str
    taken_ms: int = 0
    taken_from: int = -1


def is_owner(value: bytes | None) -> bool:
    """Say whether a value of `!epoch` names an owner: the one record that decides who owns."""
    try:
        owner = Owner(**json.loads(value or b"null"))
    except (ValueError, TypeError, RecursionError):
        return False
    numbers = (owner.epoch, owner.taken_ms, owner.taken_from)
    return isinstance(owner.instance, str) and all(
        isinstance(number, int) and abs(number) < 1 << 63 for number in numbers
    )


class EntryUnreadable(InfrastructureError):
    """An entry of a table is none of ours. Its owner stops, rather than buy or count anew."""

    def __init__(self, changelog: str, key: str, reason: str) -> None:
        super().__init__(
            f"{changelog}: the entry {key[:300]!r} can't be read: {reason} A newer Rowmill wrote it, "
            "or somebody else: upgrade, or write a record without a value (a tombstone) under this "
            "key, then start the worker again."
        )


class NotOwned(RowmillError):
    """The partition is not owned by this process now. Whoever owns it does the work again."""

    def __init__(self, table: str, partition: int) -> None:
        super().__init__(f"table {table}: partition {partition} is not owned by this process.")


class _Write:
    """A write on its way: in the overlay until it is in the store."""

    __slots__ = ("derived", "future", "key", "offset", "raw", "value")

    def __init__(
        self,
        key: str,
        value: bytes | None,
        derived: list[tuple[str, bytes]],
        future: asyncio.Future[None],
    ) -> None:
        self.key = key
        self.raw = key.encode()
        self.value = value
        self.derived = derived
        self.future = future
        self.offset = -1


class OwnedPartition:
    """One partition of a table while this process owns it."""

    def __init__(
        self,
        table: str,
        partition: int,
        store: PartitionStore,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` stops the worker: nothing may be committed once a write is not in the store."""
        self.table = table
        self.partition = partition
        self.store = store
        self._on_failure = on_failure
        self.epoch = 0
        self.overlay: dict[str, tuple[_Write, bytes | None]] = {}
        self.contiguous = True
        self._acknowledged: list[_Write] = []
        self._open: set[_Write] = set()
        self._scheduled = False

    def add(self, write: _Write) -> None:
        """Make a write visible to this owner."""
        self._open.add(write)
        self.overlay[write.key] = (write, write.value)
        for key, value in write.derived:
            self.overlay[key] = (write, value)

    def acknowledged(self, write: _Write, ack: asyncio.Future[Any]) -> None:
        """Take the broker's answer to a write; it is stored with all that came in this turn."""
        if write not in self._open:
            return
        error = asyncio.CancelledError() if ack.cancelled() else ack.exception()
        if error is not None:
            # The producer has failed, and that stops the worker: nothing is committed any more.
            self._settle(write, error)
            return
        write.offset = ack.result().offset
        self._acknowledged.append(write)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.store_acknowledged)

    def store_acknowledged(self) -> None:
        """Write everything acknowledged so far to the store, in one batch, and tell who waits."""
        self._scheduled = False
        writes, self._acknowledged = self._acknowledged, []
        if not writes:
            return
        try:
            following = self._next_offset(writes)
            self.store.write(self._entries(writes), following, ahead=not self.contiguous)
        except Exception as error:  # noqa: BLE001 - whatever it is ends the worker
            for write in writes:
                self._settle(write, error)
            self._on_failure(error)
            return
        for write in writes:
            self._settle(write, None)

    def close(self) -> None:
        """Store what was acknowledged, abandon the rest, close the store."""
        self.store_acknowledged()
        for write in list(self._open):
            self._settle(write, NotOwned(self.table, self.partition))
        self.store.touch()
        self.store.close()

    def _entries(self, writes: list[_Write]) -> Iterator[Entry]:
        for write in writes:
            yield Entry(write.raw, write.value, self.epoch)
            for key, value in write.derived:
                yield Entry(key.encode(), value, self.epoch)

    def _next_offset(self, writes: list[_Write]) -> int:
        """Return the offset to persist: it never passes a record that is not in the store.

        A hole between two of our records is a foreign one: a late record of a former owner, or the
        record of an owner we don't know of yet. The offset then stays before it for the rest of this
        ownership. What was written since may count for nobody (we were the former owner), so the next
        recovery builds the store anew from its changelog.
        """
        following = self.store.next_offset or 0
        for write in writes:
            if self.contiguous and write.offset == following:
                following += 1
            elif self.contiguous:
                self.contiguous = False
                log.warning(
                    "foreign_changelog_record",
                    table=self.table,
                    partition=self.partition,
                    offset=following,
                )
        return following

    def _settle(self, write: _Write, error: BaseException | None) -> None:
        self._open.discard(write)
        for key in (write.key, *(key for key, _ in write.derived)):
            held = self.overlay.get(key)
            if held is not None and held[0] is write:
                del self.overlay[key]
        if write.future.done():
            return
        if error is None:
            write.future.set_result(None)
        else:
            write.future.set_exception(error)
            write.future.exception()  # whoever awaits it still gets it; nobody must


class DurableTable:
    """A table over the partitions that this process owns. Keys are text, values bytes (JSON)."""

    is_global = False
    """The co-partitioned assignor asks."""

    def __init__(
        self,
        app: Any,
        name: str,
        definition: TopicDefinition,
        derive: Derive | None,
        refresh: Refresh | None = None,
    ) -> None:
        self.name = name
        self.definition = definition
        self.changelog = app.wire_name(definition)
        self.derive = derive
        self.refresh = refresh
        self.path: Path = app.directory.path / "tables" / name
        self._app = app
        self._owned: dict[int, OwnedPartition] = {}

    def get(self, partition: int, key: str) -> bytes | None:
        """Return the entry's value, None where there is none. Raises: NotOwned, StoreFailed."""
        owned = self.owned(partition)
        held = owned.overlay.get(key)
        if held is not None:
            return held[1]
        return owned.store.get(key.encode())

    def put(self, partition: int, key: str, value: bytes) -> asyncio.Future[None]:
        """Write an entry. `get` sees it at once; the future resolves once it is durable.

        Durable: its changelog record is acknowledged, and entry and offset are in the store. Writes
        of one partition become durable in the order of the calls. Cancelling the future undoes
        nothing. Raises: NotOwned, RecordTooLarge, ValueError for an empty key or one with a leading
        NUL; the future: DeliveryFailed, StoreFailed, NotOwned.
        """
        return self._write(partition, key, value)

    def delete(self, partition: int, key: str) -> asyncio.Future[None]:
        """Remove an entry; otherwise as `put`."""
        return self._write(partition, key, None)

    def scan(self, partition: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield entries whose keys start with `prefix`, in the order of their UTF-8 bytes.

        Read in pages of 1,000, each with an iterator of its own, so that none is left open; writes
        made in between may or may not be seen. Raises: NotOwned, also between pages; StoreFailed.
        """
        after: bytes | None = None
        while True:
            owned = self.owned(partition)
            page = owned.store.scan(prefix.encode(), after, SCAN_PAGE)
            last = page[-1][0] if len(page) == SCAN_PAGE else None
            for key, value in _laid_over(page, owned.overlay, prefix, after, last):
                if key != EPOCH_KEY:
                    yield key, value
            if last is None:
                return
            after = last

    def owned(self, partition: int) -> OwnedPartition:
        """Return the owned partition. Raises: NotOwned."""
        found = self._owned.get(partition)
        if found is None:
            raise NotOwned(self.name, partition)
        return found

    def own(self, partition: int, owned: OwnedPartition) -> None:
        """Begin an ownership: its store is recovered."""
        self._owned[partition] = owned

    def raise_epoch(self, partition: int, owner: Owner) -> asyncio.Future[None]:
        """Begin an epoch: durable before the first event of the partition is delivered."""
        self.owned(partition).epoch = owner.epoch
        value = json.dumps(asdict(owner), separators=(",", ":"))
        return self._write(partition, EPOCH_KEY, value.encode())

    def last_owner(self, partition: int) -> Owner | None:
        """Return the newest owner that the partition's changelog told of."""
        stored = self.owned(partition).store.get(EPOCH_KEY.encode())
        return Owner(**json.loads(stored)) if stored else None

    def write_again(self, partition: int, key: str) -> None:
        """Cover a late record: what we have is written once more, or that there is nothing.

        Compaction keeps the last record of a key, and would leave a late one. Raises: NotOwned.
        """
        current = self.get(partition, key)
        if current is not None and self.refresh is not None:
            current = self.refresh(partition, key, current)
        self._write(partition, key, current)

    def store_acknowledged(self) -> None:
        """Store what the broker has acknowledged so far, now."""
        for owned in self._owned.values():
            owned.store_acknowledged()

    def close(self) -> None:
        """End all ownerships and close the stores."""
        owned, self._owned = self._owned, {}
        for one in owned.values():
            one.close()

    async def maybe_start(self) -> None:
        """Nothing: Faust's manager starts tables, ownership opens stores."""

    def _write(self, partition: int, key: str, value: bytes | None) -> asyncio.Future[None]:
        owned = self.owned(partition)
        if not key or key[0] == "\x00":
            raise ValueError(f"table {self.name}: {key!r} can't be a key")
        derived = list(self.derive(key, value)) if self.derive and value is not None else []
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        write = _Write(key, value, derived, future)
        producer: StrictProducer = self._app.producer
        ack = producer.enqueue(
            self.changelog, write.raw, value, partition, [(EPOCH_HEADER, b"%d" % owned.epoch)]
        )
        owned.add(write)
        ack.add_done_callback(lambda done: owned.acknowledged(write, done))
        return future


def _laid_over(
    page: list[tuple[bytes, bytes]],
    overlay: dict[str, tuple[_Write, bytes | None]],
    prefix: str,
    after: bytes | None,
    last: bytes | None,
) -> list[tuple[str, bytes]]:
    """Lay the overlay's entries in (after, last] over a page of the store."""
    found: dict[bytes, bytes] = dict(page)
    for key, (_, value) in overlay.items():
        raw = key.encode()
        if not key.startswith(prefix) or (after is not None and raw <= after):
            continue
        if last is not None and raw > last:
            continue
        if value is None:
            found.pop(raw, None)
        else:
            found[raw] = value
    return [(raw.decode(), found[raw]) for raw in sorted(found)]


class Tables(TableManager):
    """Faust's table manager, reduced to the list of tables that the assignor asks.

    Recovery, stores and offsets are the engine's (`Ownership`): Faust's recovery is last write wins
    (KAFKA-12693), seeks to the last applied offset (651, 176), loops on a persisted offset beyond the
    high-water mark (158) and applies records of partitions it does not track to another table.
    """

    def add(self, table: Any) -> Any:
        """Register a table before the app starts."""
        self[table.name] = table
        self._changelogs[table.changelog] = table
        return table

    async def on_start(self) -> None:
        """Let the conductor subscribe at once; Faust waits a second for tables to come."""
        self._tables_finalized.set()
        self._tables_registered.set()

    async def on_stop(self) -> None:
        """Nothing: stores were closed when the partitions were given up."""

    def on_rebalance_start(self) -> None:
        """Nothing to do."""

    async def wait_until_recovery_completed(self) -> bool:
        """Return at once: `RoleApp` says by itself when it is ready."""
        return False
