from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rowmill.streams.engine.recovery import _start_of, epoch_of, winners
from rowmill.streams.engine.stores import Entry, PartitionStore


@dataclass
class Record:
    key: bytes
    value: bytes | None
    epoch: int

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [("other", b"x"), ("rowmill_epoch", str(self.epoch).encode())]


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path / "0")


def left(records: list[Record], store: PartitionStore) -> dict[bytes, bytes | None]:
    return {entry.key: entry.value for entry in winners(records, store, None)[0]}


def counts(key: str, value: bytes) -> Iterable[tuple[str, bytes]]:
    return [("counts", value)]


def test_of_one_epoch_the_later_record_wins(store: PartitionStore) -> None:
    assert left([Record(b"a", b"1", 3), Record(b"a", b"2", 3)], store) == {b"a": b"2"}


def test_a_record_of_a_lower_epoch_loses_in_one_batch_and_over_batches(
    store: PartitionStore,
) -> None:
    assert left([Record(b"a", b"new", 4), Record(b"a", b"late", 3)], store) == {b"a": b"new"}
    store.write([Entry(b"a", b"new", 4)], 1)
    assert winners([Record(b"a", b"late", 3)], store, None) == ([], 1)


def test_a_record_that_comes_after_a_higher_epoch_began_counts_for_nobody(
    store: PartitionStore,
) -> None:
    """Also where its key was never written since: nobody knew of it (tests/faults, seed 11)."""
    began = Record(b"!epoch", owner_of(4), 4)
    records = [Record(b"a", b"in time", 3), began, Record(b"b", b"late", 3), Record(b"c", b"1", 4)]
    entries, refused = winners(records, store, None)
    assert {entry.key for entry in entries} == {b"a", b"!epoch", b"c"}
    assert refused == 1
    store.write(entries, 4)
    assert winners([Record(b"d", b"late", 3)], store, None) == ([], 1)
    assert winners([Record(b"!epoch", owner_of(3), 3)], store, None) == ([], 1)


def owner_of(epoch: int) -> bytes:
    return json.dumps({"epoch": epoch, "instance": "i"}).encode()


def test_a_late_record_does_not_bring_a_deleted_entry_back(store: PartitionStore) -> None:
    store.write([Entry(b"a", None, 4)], 1)
    assert left([Record(b"a", b"late", 3)], store) == {}
    assert left([Record(b"a", b"again", 5)], store) == {b"a": b"again"}


def test_a_late_deletion_deletes_nothing(store: PartitionStore) -> None:
    store.write([Entry(b"a", b"new", 4)], 1)
    assert left([Record(b"a", None, 3)], store) == {}


def test_derived_entries_are_held_to_their_own_epoch(store: PartitionStore) -> None:
    """A late record of another key is no reason to set the partition's counts back."""
    records = [Record(b"a", b"10", 4), Record(b"b", b"7", 3)]
    entries, refused = winners(records, store, counts)
    assert {entry.key: entry.value for entry in entries} == {
        b"a": b"10",
        b"counts": b"10",
        b"b": b"7",
    }
    assert refused == 0


def test_a_refused_record_derives_nothing(store: PartitionStore) -> None:
    store.write([Entry(b"a", b"new", 4)], 1)
    assert winners([Record(b"a", b"late", 3)], store, counts) == ([], 1)


def test_a_record_without_a_header_is_of_epoch_zero() -> None:
    assert epoch_of([("content-type", b"application/json")]) == 0


@pytest.mark.parametrize(
    ("following", "expected"),
    [(None, 5), (5, 5), (7, 7), (10, 10), (4, 5), (11, 5)],
    ids=["empty", "at the beginning", "in between", "at the end", "trimmed", "beyond the end"],
)
def test_recovery_reads_from_the_next_offset_or_all_again(
    store: PartitionStore, following: int | None, expected: int
) -> None:
    """651, 176: not from the last applied one; 158: a store beyond its changelog is dropped."""
    if following is not None:
        store.write([Entry(b"a", b"1", 1)], following)
    assert _start_of(store, beginning=5, end=10) == expected
    kept = following is not None and 5 <= following <= 10
    assert (store.get(b"a") is not None) == kept
