"""Bring stores up to their changelogs, by epoch, before a partition is worked on.

A consumer of its own reads the changelogs from the next offset (not the last applied one: 651, 176)
to the end, and writes a batch of thousands at a time. A record wins only over an entry of the same
or a lower epoch: what a cut-off former owner had in its producer may arrive after its successor's
(KAFKA-12693), and aiokafka's idempotent batches never expire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from rowmill.streams.engine.stores import Entry, PartitionStore
from rowmill.streams.engine.tables import EPOCH_HEADER, Derive, DurableTable

log = structlog.get_logger(__name__)

PROGRESS_EVERY_S = 5.0
BATCH_RECORDS = 4_000
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

    async def run(self) -> None:
        """Bring every store up to the end its changelog has now.

        Raises: StoreFailed; aiokafka.errors.KafkaError where the broker does not answer.
        """
        if not self._stores:
            return
        reader = AIOKafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=20,
            **self._options,
        )
        await reader.start()
        try:
            reader.assign(list(self._stores))
            await self._read(reader)
        finally:
            await reader.stop()

    async def _read(self, reader: AIOKafkaConsumer) -> None:
        began_s = time.monotonic()
        tps = list(self._stores)
        beginnings = await reader.beginning_offsets(tps)
        ends = await reader.end_offsets(tps)
        total = 0
        for tp, store in self._stores.items():
            start = _start_of(store, beginnings[tp], ends[tp])
            reader.seek(tp, start)
            total += ends[tp] - start
        progress = _Progress(total)
        behind = {tp for tp in tps if await reader.position(tp) < ends[tp]}
        while behind:
            try:
                fetched = await reader.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
            except OffsetOutOfRangeError as error:
                for tp in error.args[0]:
                    # Trimmed while we read: what was before is gone, so is what it deleted.
                    self._stores[tp].destroy("its changelog was trimmed")
                    reader.seek(tp, (await reader.beginning_offsets([tp]))[tp])
                continue
            for tp, records in fetched.items():
                self._apply(tp, records)
                progress.add(tp, len(records))
            for tp in list(behind):
                position = await reader.position(tp)
                if position >= ends[tp]:
                    behind.discard(tp)
                    self._stores[tp].write((), max(position, self._stores[tp].next_offset or 0))
            await asyncio.sleep(0)
        for tp, store in self._stores.items():
            # An empty changelog, or one whose tail was compacted away: up to date all the same.
            store.write((), max(ends[tp], store.next_offset or 0))
            store.bury()
        log.info(
            "tables_recovered",
            partitions=len(tps),
            records=self.applied + self.refused,
            refused_by_epoch=self.refused,
            took_s=round(time.monotonic() - began_s, 3),
        )

    def _apply(self, tp: TopicPartition, records: Sequence[Any]) -> None:
        store = self._stores[tp]
        entries, refused = winners(records, store, self._tables[tp.topic].derive)
        store.write(entries, records[-1].offset + 1)
        self.refused += refused
        self.applied += len(records) - refused


def winners(
    records: Sequence[Any], store: PartitionStore, derive: Derive | None
) -> tuple[list[Entry], int]:
    """Return the entries that changelog `records` leave over `store`, and how many were refused.

    `records`: in the order of their offsets, with `key`, `value` and `headers`. Derived entries
    are held to the same rule, each by its own epoch.
    """
    read = [
        (
            (record.key or b"", record.value),
            epoch_of(record.headers),
            []
            if derive is None or record.value is None
            else [
                (key.encode(), value) for key, value in derive(record.key.decode(), record.value)
            ],
        )
        for record in records
    ]
    keys = list({key for written, _, derived in read for key, _ in (written, *derived)})
    known = dict(zip(keys, store.epochs(keys), strict=True))
    kept: dict[bytes, Entry] = {}
    refused = 0
    for written, epoch, derived in read:
        if epoch < known[written[0]]:
            refused += 1
            continue
        for key, value in (written, *derived):
            if epoch >= known[key]:
                known[key] = epoch
                kept[key] = Entry(key, value, epoch)
    return list(kept.values()), refused


def epoch_of(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return a changelog record's epoch, 0 where it has none."""
    for name, value in headers:
        if name == EPOCH_HEADER:
            return int(value)
    return 0


def _start_of(store: PartitionStore, beginning: int, end: int) -> int:
    """Return where to read on, after dropping a store that its changelog can't bring up to date."""
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

    def add(self, tp: TopicPartition, records: int) -> None:
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
