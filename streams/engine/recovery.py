"""Bring stores up to their changelogs, by epoch, before a partition is worked on.

A consumer of its own reads the changelogs from the next offset (not the last applied one: 651, 176)
to the end, and writes a batch of thousands at a time. A record counts only where no higher epoch has
begun before it in the log: what a cut-off former owner had in its producer may arrive after that
(KAFKA-12693; aiokafka's idempotent batches never expire), when its successor has read the log already.
Were it to count for the owner after that one, the counts that go with entries would be those of no
state that anybody had (tests/faults, seed 11).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from rowmill.streams.engine.stores import Entry, PartitionStore
from rowmill.streams.engine.tables import EPOCH_HEADER, EPOCH_KEY, Derive, DurableTable, is_owner
from rowmill.streams.tasks import closed

log = structlog.get_logger(__name__)

EPOCH_DIGITS_MAX = 18
"""Epochs count assignments; a longer one is no owner's, and no store could hold it."""

_EPOCH_KEY = EPOCH_KEY.encode()

PROGRESS_EVERY_S = 5.0
BATCH_RECORDS = 4_000
FETCH_WAIT_MS = 20
FETCH_BYTES = 4 << 20
"""Per partition and fetch: a changelog is read as fast as the broker sends."""


class Recovery:
    """Recovery of one assignment: the changelog partitions of all tables, together."""

    def __init__(
        self,
        client_options: Mapping[str, Any],
        stores: Mapping[TopicPartition, PartitionStore],
        tables: Mapping[str, DurableTable],
    ) -> None:
        """`stores` by changelog partition; `tables` by changelog topic."""
        self._options = client_options
        self._stores = stores
        self._tables = tables
        self.applied = 0
        self.refused = 0
        self._behind: set[TopicPartition] = set()
        self._progress = _Progress(0)

    async def run(self) -> None:
        """Bring every store up to the end its changelog has now.

        Raises: StoreFailed; aiokafka.errors.KafkaError where the broker does not answer.
        """
        if not self._stores:
            return
        began_s = time.monotonic()
        async with self._reading() as (reader, ends):
            while self._behind:
                await self._step(reader)
                await self._note_positions(reader, ends)
        for tp, store in self._stores.items():
            # An empty changelog, or one whose tail was compacted away: up to date all the same.
            store.write((), max(ends[tp], store.next_offset or 0))
            store.bury()
        log.info(
            "tables_recovered",
            partitions=len(self._stores),
            records=self.applied + self.refused,
            refused_by_epoch=self.refused,
            took_s=round(time.monotonic() - began_s, 3),
        )

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[tuple[AIOKafkaConsumer, dict[TopicPartition, int]]]:
        """Yield a reader at the place of each store, and the end each changelog has now."""
        reader = AIOKafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            **self._options,
        )
        await reader.start()
        try:
            tps = list(self._stores)
            reader.assign(tps)
            beginnings = await reader.beginning_offsets(tps)
            ends = await reader.end_offsets(tps)
            total = 0
            for tp, store in self._stores.items():
                start = _start_of(store, beginnings[tp], ends[tp])
                reader.seek(tp, start)
                total += ends[tp] - start
            self._behind = set(tps)
            self._progress = _Progress(total)
            await self._note_positions(reader, ends)
            yield reader, ends
        finally:
            await closed(reader.stop())

    async def _step(self, reader: AIOKafkaConsumer) -> None:
        """Apply what the next fetch brings."""
        try:
            fetched = await reader.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
        except OffsetOutOfRangeError as error:
            for tp in error.args[0]:
                # Trimmed while we read: what was before is gone, so is what it deleted.
                self._stores[tp].destroy("its changelog was trimmed")
                reader.seek(tp, (await reader.beginning_offsets([tp]))[tp])
            return
        for tp, records in fetched.items():
            store = self._stores[tp]
            entries, refused = winners(records, store, self._tables[tp.topic].derive)
            store.write(entries, records[-1].offset + 1)
            self.refused += refused
            self.applied += len(records) - refused
            self._progress.add(len(records))
        await asyncio.sleep(0)

    async def _note_positions(
        self, reader: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
    ) -> None:
        self._behind = {tp for tp in self._behind if await reader.position(tp) < ends[tp]}


class Standby(Recovery):
    """Keeps stores of partitions that other members own up to date, for a quick takeover.

    Applies the same rule by epoch; whoever is assigned such a partition recovers the few records
    that its store lacks.
    """

    async def run(self) -> None:
        """Follow the changelogs until cancelled. Raises: StoreFailed, aiokafka's KafkaError."""
        async with self._reading() as (reader, _):
            while True:
                await self._step(reader)


def winners(
    records: Sequence[Any], store: PartitionStore, derive: Derive | None
) -> tuple[list[Entry], int]:
    """Return the entries that changelog `records` leave over `store`, and how many were refused.

    `records`: in the order of their offsets, with `key`, `value` and `headers`. One is late, and
    refused, where a higher epoch has begun before it. Derived entries are held to their own epochs,
    too. A record that is none of this table's (a key that can't be one, a value that `derive` can't
    read) is refused: it replaces nothing.
    """
    parts = (_read(record, derive) for record in records)
    read = [part for part in parts if part is not None]
    keys = list({key for written, _, derived in read for key, _ in (written, *derived)})
    known = dict(zip(keys, store.epochs(keys), strict=True))
    (owner,) = store.epochs([_EPOCH_KEY])
    kept: dict[bytes, Entry] = {}
    refused = len(records) - len(read)
    for written, epoch, derived in read:
        if epoch < max(owner, known[written[0]]):
            refused += 1
            continue
        if written[0] == _EPOCH_KEY:
            owner = epoch
        for key, value in (written, *derived):
            if epoch >= known[key]:
                known[key] = epoch
                kept[key] = Entry(key, value, epoch)
    return list(kept.values()), refused


def _read(
    record: Any, derive: Derive | None
) -> tuple[tuple[bytes, bytes | None], int, list[tuple[bytes, bytes]]] | None:
    """Return the entry, its epoch and what follows from it; None where it is none of this table's."""
    key = key_of(record.key)
    if key is None or (key == EPOCH_KEY and not is_owner(record.value)):
        reason = "its key can't be one" if key is None else "it names no owner"
    else:
        try:
            derived = [] if derive is None or record.value is None else derive(key, record.value)
            entries = [(name.encode(), value) for name, value in derived]
            return (record.key, record.value), epoch_of(record.headers), entries
        except ValueError as error:
            reason = str(error)[:200]
    log.warning("changelog_record_refused", offset=getattr(record, "offset", -1), reason=reason)
    return None


def key_of(raw: bytes | None) -> str | None:
    """Return a changelog record's key, None where no table of ours has such a key."""
    if not raw or raw[0] == 0:  # what begins with NUL is the store's own
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def epoch_of(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return a changelog record's epoch, 0 where it has none."""
    for name, value in headers:
        if name == EPOCH_HEADER:
            return int(value) if len(value) <= EPOCH_DIGITS_MAX and value.isdigit() else 0
    return 0


def _start_of(store: PartitionStore, beginning: int, end: int) -> int:
    """Return where to read on, after dropping a store that its changelog can't bring up to date."""
    if store.ahead:
        store.destroy("it holds entries of which its changelog may know better")
    following = store.next_offset
    if following is None:
        return beginning
    if following > end:
        # Faust crash-loops here until someone deletes the directory (158).
        store.destroy(f"it is at offset {following}, its changelog ends at {end}")
        return beginning
    if following < beginning:
        store.destroy(f"it is at offset {following}, its changelog begins at {beginning}")
        return beginning
    return following


class _Progress:
    """Says every few seconds how far a long recovery is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began_s = self._said_s = time.monotonic()

    def add(self, records: int) -> None:
        self._done += records
        now_s = time.monotonic()
        if now_s - self._said_s >= PROGRESS_EVERY_S:
            self._said_s = now_s
            log.info(
                "recovering_tables",
                records=self._done,
                of_about=self._total,
                records_per_s=round(self._done / (now_s - self._began_s)),
            )
