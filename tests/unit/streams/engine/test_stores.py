from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from rowmill.streams.engine import stores
from rowmill.streams.engine.stores import Entry, PartitionStore, StoreFailed


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return PartitionStore(tmp_path / "0")


def test_entries_and_their_offset_are_there_after_a_reopening(tmp_path: Path) -> None:
    store = PartitionStore(tmp_path / "0")
    assert store.next_offset is None
    store.write([Entry(b"a", b"1", 3), Entry(b"b", b"2", 3)], 17)
    store.close()
    again = PartitionStore(tmp_path / "0")
    assert (again.get(b"a"), again.get(b"b"), again.get(b"c")) == (b"1", b"2", None)
    assert again.next_offset == 17


def test_of_two_writes_of_a_key_in_one_batch_the_later_wins(store: PartitionStore) -> None:
    store.write([Entry(b"a", b"1", 3), Entry(b"a", None, 3), Entry(b"a", b"2", 3)], 3)
    assert store.get(b"a") == b"2"


def test_a_deletion_keeps_its_epoch(store: PartitionStore) -> None:
    store.write([Entry(b"a", b"1", 3), Entry(b"b", b"1", 4)], 2)
    store.write([Entry(b"a", None, 7)], 3)
    assert store.get(b"a") is None
    assert store.epochs([b"a", b"b", b"c"]) == [7, 4, -1]


def test_a_scan_is_in_order_bounded_and_shows_only_entries(store: PartitionStore) -> None:
    keys = [f"p/{number:03}".encode() for number in range(25)]
    store.write([Entry(key, b"v", 1) for key in [*keys, b"o/1", b"q/1"]], 27)
    store.write([Entry(keys[3], None, 1)], 28)
    page = store.scan(b"p/", None, 10)
    assert [key for key, _ in page] == keys[:3] + keys[4:11]
    assert [key for key, _ in store.scan(b"p/", page[-1][0], 100)] == keys[11:]
    assert len(store.scan(b"", None, 100)) == 26


def test_a_store_that_was_not_written_for_half_a_day_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its changelog may have lost tombstones that it needs."""
    store = PartitionStore(tmp_path / "0")
    store.write([Entry(b"a", b"1", 1)], 1)
    store.close()
    later = stores._wall_ms() + stores.STORE_AGE_MAX_MS + 1
    monkeypatch.setattr(stores, "_wall_ms", lambda: later)
    again = PartitionStore(tmp_path / "0")
    assert again.get(b"a") is None
    assert again.next_offset is None


def test_a_store_that_is_up_to_date_keeps_its_age_from_its_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = stores._wall_ms()
    store = PartitionStore(tmp_path / "0")
    store.write([Entry(b"a", b"1", 1)], 1)
    monkeypatch.setattr(stores, "_wall_ms", lambda: began + stores.STORE_AGE_MAX_MS - 1)
    store.touch()
    store.close()
    monkeypatch.setattr(stores, "_wall_ms", lambda: began + stores.STORE_AGE_MAX_MS + 1)
    assert PartitionStore(tmp_path / "0").get(b"a") == b"1"


def test_old_tombstones_are_forgotten(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write([Entry(b"old", None, 1)], 1)
    now = stores._wall_ms()
    monkeypatch.setattr(stores, "_wall_ms", lambda: now + stores.TOMBSTONE_AGE_MAX_MS)
    store.write([Entry(b"young", None, 2)], 2)
    monkeypatch.setattr(stores, "_wall_ms", lambda: now + stores.TOMBSTONE_AGE_MAX_MS + 1_000)
    assert store.bury() == 1
    assert store.epochs([b"old", b"young"]) == [-1, 2]


def test_a_store_with_a_broken_file_is_begun_anew(tmp_path: Path) -> None:
    store = PartitionStore(tmp_path / "0")
    store.write([Entry(b"a", b"1", 1)], 1)
    store.close()
    (tmp_path / "0" / "CURRENT").write_text("nonsense")
    assert PartitionStore(tmp_path / "0").next_offset is None


def test_corruption_met_while_reading_marks_the_store_for_a_rebuild(tmp_path: Path) -> None:
    """Otherwise the worker fails at the same block after every start."""
    store = PartitionStore(tmp_path / "0")
    store.write([Entry(b"a", b"1", 1)], 1)
    failure = store._failed(RuntimeError("Corruption: block checksum mismatch"))
    assert str(tmp_path / "0") in str(failure)
    store.close()
    assert PartitionStore(tmp_path / "0").next_offset is None


def test_a_store_that_can_not_be_closed_is_told_and_ends_no_process(tmp_path: Path) -> None:
    """A full disk: RocksDB raises while it flushes at the end (F24)."""
    store = PartitionStore(tmp_path)
    real, store._db = store._db, cast(Any, BrokenDatabase())
    store.close()
    for broken in (
        lambda: store.get(b"k"),
        lambda: store.scan(b"", None, 10),
        lambda: store.write([Entry(b"k", b"v", 1)], 1),
        store.bury,
    ):
        with pytest.raises(StoreFailed, match="No space left on device"):
            broken()
    real.close()


class BrokenDatabase:
    """Raises what RocksDB raises, at every door."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any) -> None:
            raise RuntimeError("IO error: No space left on device: While appending to file")

        return fail


def test_a_dropped_store_is_empty(store: PartitionStore) -> None:
    store.write([Entry(b"a", b"1", 1)], 1)
    store.destroy("a test")
    assert (store.get(b"a"), store.next_offset) == (None, None)
