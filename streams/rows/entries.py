"""The table `rows`: what became of each row of a run, and the run's counts after it.

Key `run/row`, a duplicate's `run/row/index`. Every entry carries the run's counts in its partition
with itself included, in one record, so there is no gap between a row and its count. The newest
counts are kept beside the entries under `~counts/run`, derived locally, at recovery too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from rowmill.streams.core.accounting import CallTally, Counts
from rowmill.streams.engine.tables import DurableTable, EntryUnreadable
from rowmill.topics import codec
from rowmill.topics.catalogue import ROWS_CHANGELOG
from rowmill.topics.contracts import RowEntry

COUNTS = "~counts/"

Ending = Literal["completed", "failed", "skipped"]


class _CountsOfEntry(msgspec.Struct):
    """The two fields of an entry that the derived counts need."""

    run: str
    counts: msgspec.Raw


class _Counts(msgspec.Struct):
    """What `Counts.from_json` takes, so that counts that are none are refused where they come."""

    completed: int = 0
    failed: int = 0
    skipped: int = 0
    duplicates: int = 0
    reused: int = 0
    calls: dict[str, float] = {}
    calls_reused: dict[str, float] = {}
    spent: dict[str, float] = {}


_decode_entry = msgspec.json.Decoder(_CountsOfEntry).decode
_decode_counts = msgspec.json.Decoder(_Counts).decode


def derive_counts(key: str, value: bytes) -> Iterable[tuple[str, bytes]]:
    """Return the local entry that an entry of `rows` brings with it: its run's newest counts.

    Raises: ValueError where the value is no entry.
    """
    if key.startswith("!"):  # the engine's own, such as the epoch
        return ()
    try:
        found = _decode_entry(value)
        _decode_counts(found.counts)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return ((COUNTS + found.run, bytes(found.counts)),)


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a row of a run: where it stands in the input, how it ended, by which command."""

    index: int
    status: str
    command: int


class RowEntries:
    """Entries and counts of the partitions that this worker owns.

    Counts move on when an entry is put, not when it is durable: the changelog keeps the order of
    puts, and a put that fails ends the process.
    """

    def __init__(self, table: DurableTable, epoch: Callable[[int], int]) -> None:
        self._table = table
        self._epoch = epoch
        self._counts: dict[tuple[int, str], Counts] = {}

    def ended(self, partition: int, run: str, row: str) -> Ended | None:
        """Return how the row that holds this id in the run ended, None where it did not.

        Raises: NotOwned, EntryUnreadable.
        """
        value = self._table.get(partition, f"{run}/{row}")
        if value is None:
            return None
        entry = _entry_of(f"{run}/{row}", value)
        return Ended(entry.index, entry.status, entry.command)

    def has_duplicate(self, partition: int, run: str, row: str, index: int) -> bool:
        """Return whether this index was counted as a duplicate before. Raises: NotOwned."""
        return self._table.get(partition, f"{run}/{row}/{index}") is not None

    def put_ending(
        self,
        partition: int,
        run: str,
        life: int,
        row: str,
        index: int,
        status: Ending,
        calls: CallTally,
        *,
        command: int,
        again: bool,
    ) -> asyncio.Future[None]:
        """Write a row's ending; the future resolves once it is durable. Raises: NotOwned.

        `command`: whose ending it is. `again`: it takes the place of a failed one of an older
        command, in the counts too.
        """
        counts = self._counts_of(partition, run)
        counts = (counts.after_retry if again else counts.after_row)(status, calls)
        entry = self._entry(
            partition,
            run=run,
            life=life,
            row=row,
            index=index,
            status=status,
            counts=counts,
            command=command,
        )
        return self._put(partition, f"{run}/{row}", entry, counts)

    def put_duplicate(
        self, partition: int, run: str, life: int, row: str, index: int, duplicate_of: int
    ) -> asyncio.Future[None]:
        """Write that `index` is a duplicate (I3). Raises: NotOwned."""
        counts = self._counts_of(partition, run).after_duplicate()
        entry = self._entry(
            partition,
            run=run,
            life=life,
            row=row,
            index=index,
            status="duplicate",
            duplicate_of=duplicate_of,
            counts=counts,
        )
        return self._put(partition, f"{run}/{row}/{index}", entry, counts)

    def refreshed(self, partition: int, key: str, value: bytes) -> bytes:
        """Return an entry to be written again: its own ending, with the counts as they are now.

        Raises: EntryUnreadable.
        """
        entry = _entry_of(key, value)
        counts = self._counts_of(partition, entry.run).to_json()
        epoch = self._epoch(partition)
        return codec.encode(entry.model_copy(update={"counts": counts, "epoch": epoch}))

    def forget(self, partitions: set[int]) -> None:
        """Drop what is remembered of partitions that went to another owner."""
        for place in [place for place in self._counts if place[0] in partitions]:
            del self._counts[place]

    def _counts_of(self, partition: int, run: str) -> Counts:
        counts = self._counts.get((partition, run))
        if counts is None:
            stored = self._table.get(partition, COUNTS + run)
            counts = Counts() if stored is None else Counts.from_json(msgspec.json.decode(stored))
        return counts

    def _entry(self, partition: int, *, counts: Counts, **fields: Any) -> RowEntry:
        return RowEntry.model_construct(
            epoch=self._epoch(partition), counts=counts.to_json(), **fields
        )

    def _put(
        self, partition: int, key: str, entry: RowEntry, counts: Counts
    ) -> asyncio.Future[None]:
        durable = self._table.put(partition, key, codec.encode(entry))
        self._counts[partition, entry.run] = counts
        return durable


def _entry_of(key: str, value: bytes) -> RowEntry:
    try:
        return codec.decode(RowEntry, value)
    except codec.UndecodableRecord as error:
        raise EntryUnreadable(ROWS_CHANGELOG.name, key, f"{error}.") from error
