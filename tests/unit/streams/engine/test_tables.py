from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rowmill.streams.engine.stores import Entry, PartitionStore
from rowmill.streams.engine.tables import DurableTable, NotOwned, OwnedPartition, Owner
from rowmill.topics.catalogue import ROWS_CHANGELOG


class Changelog:
    """A producer whose acknowledgements the test gives."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes | None, Any]] = []
        self.acks: list[asyncio.Future[Any]] = []

    def enqueue(
        self, topic: str, key: bytes, value: bytes | None, partition: int, headers: Any
    ) -> asyncio.Future[Any]:
        self.sent.append((key, value, headers))
        self.acks.append(asyncio.get_running_loop().create_future())
        return self.acks[-1]

    async def acknowledge(self, place: int, offset: int) -> None:
        self.acks[place].set_result(SimpleNamespace(offset=offset))
        for _ in range(3):
            await asyncio.sleep(0)


class Bench:
    """A table that owns partition 0 under epoch 6, over a real store."""

    def __init__(self, path: Path, derive: Any = None) -> None:
        self.changelog = Changelog()
        self.failures: list[BaseException] = []
        app: Any = SimpleNamespace(
            producer=self.changelog,
            directory=SimpleNamespace(path=path),
            wire_name=lambda topic: topic.name,
        )
        self.table = DurableTable(app, "rows", ROWS_CHANGELOG, derive)
        self.store = PartitionStore(self.table.path / "0")
        self.store.write((), 0)
        self.owned = OwnedPartition("rows", 0, self.store, self.failures.append)
        self.owned.epoch = 6
        self.table.own(0, self.owned)


def last_of(key: str, value: bytes) -> Iterable[tuple[str, bytes]]:
    return [("last", value)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_write_is_seen_at_once_and_stored_after_its_acknowledgement(bench: Bench) -> None:
    write = bench.table.put(0, "a", b"1")
    assert bench.table.get(0, "a") == b"1"
    assert bench.store.get(b"a") is None
    assert not write.done()
    assert bench.changelog.sent == [(b"a", b"1", [("rowmill_epoch", b"6")])]
    await bench.changelog.acknowledge(0, 0)
    assert write.done()
    assert bench.store.get(b"a") == b"1"
    assert bench.store.next_offset == 1
    assert bench.owned.overlay == {}


async def test_the_overlay_shows_the_latest_write_until_that_one_is_stored(bench: Bench) -> None:
    bench.table.put(0, "a", b"1")
    bench.table.delete(0, "a")
    last = bench.table.put(0, "a", b"3")
    await bench.changelog.acknowledge(0, 0)
    assert bench.store.get(b"a") == b"1"
    assert bench.table.get(0, "a") == b"3"
    await bench.changelog.acknowledge(1, 1)
    assert bench.store.get(b"a") is None
    assert bench.table.get(0, "a") == b"3"
    await bench.changelog.acknowledge(2, 2)
    assert last.done()
    assert bench.store.epochs([b"a"]) == [6]


async def test_what_is_acknowledged_in_one_turn_is_one_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    write = bench.store.write

    def counted(entries: Iterable[Entry], next_offset: int, *, ahead: bool) -> None:
        listed = list(entries)
        batches.append(len(listed))
        write(listed, next_offset, ahead=ahead)

    monkeypatch.setattr(bench.store, "write", counted)
    for number in range(50):
        bench.table.put(0, f"k{number}", b"1")
    for number, ack in enumerate(bench.changelog.acks):
        ack.set_result(SimpleNamespace(offset=number))
    for _ in range(3):
        await asyncio.sleep(0)
    assert batches == [50]
    assert bench.store.next_offset == 50


async def test_the_offset_never_passes_a_record_that_is_not_in_the_store(bench: Bench) -> None:
    """A hole between two of our records is a foreign one: the next recovery reads from there."""
    for number in range(3):
        bench.table.put(0, f"k{number}", b"1")
    await bench.changelog.acknowledge(0, 0)
    await bench.changelog.acknowledge(1, 2)
    await bench.changelog.acknowledge(2, 3)
    assert bench.store.get(b"k2") == b"1"
    assert bench.store.next_offset == 1


async def test_derived_entries_go_with_the_entry_they_follow_from(tmp_path: Path) -> None:
    bench = Bench(tmp_path, last_of)
    bench.table.put(0, "a", b"1")
    assert bench.table.get(0, "last") == b"1"
    assert len(bench.changelog.sent) == 1
    await bench.changelog.acknowledge(0, 0)
    assert bench.store.get(b"last") == b"1"


async def test_a_partition_that_is_not_owned_is_refused(bench: Bench) -> None:
    for refused in (
        lambda: bench.table.get(1, "a"),
        lambda: bench.table.put(1, "a", b"1"),
        lambda: bench.table.delete(1, "a"),
        lambda: list(bench.table.scan(1, "")),
    ):
        with pytest.raises(NotOwned, match="partition 1"):
            refused()
    assert bench.changelog.sent == []


async def test_writes_that_are_open_when_the_partition_goes_say_so(bench: Bench) -> None:
    stored, open_ = bench.table.put(0, "a", b"1"), bench.table.put(0, "b", b"2")
    bench.changelog.acks[0].set_result(SimpleNamespace(offset=0))
    await asyncio.sleep(0)
    bench.table.close()
    assert stored.exception() is None
    assert isinstance(open_.exception(), NotOwned)
    await bench.changelog.acknowledge(1, 1)
    again = PartitionStore(bench.table.path / "0")
    assert (again.get(b"a"), again.get(b"b"), again.next_offset) == (b"1", None, 1)


async def test_a_store_that_fails_stops_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError("No space left on device")

    def refuse(entries: Iterable[Entry], next_offset: int, *, ahead: bool) -> None:
        raise full

    write = bench.table.put(0, "a", b"1")
    monkeypatch.setattr(bench.store, "write", refuse)
    await bench.changelog.acknowledge(0, 0)
    assert write.exception() is full
    assert bench.failures == [full]


async def test_a_failed_delivery_is_told_and_stored_nowhere(bench: Bench) -> None:
    write = bench.table.put(0, "a", b"1")
    bench.changelog.acks[0].set_exception(RuntimeError("not delivered"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert isinstance(write.exception(), RuntimeError)
    assert bench.store.get(b"a") is None
    assert bench.table.get(0, "a") is None


async def test_cancelling_who_waits_undoes_nothing(bench: Bench) -> None:
    bench.table.put(0, "a", b"1").cancel()
    await bench.changelog.acknowledge(0, 0)
    assert bench.store.get(b"a") == b"1"


async def test_a_scan_shows_the_store_under_the_overlay(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowmill.streams.engine.tables.SCAN_PAGE", 3)
    stored = {f"p/{number}": str(number).encode() for number in range(0, 10, 2)}
    bench.store.write([Entry(key.encode(), value, 6) for key, value in stored.items()], 5)
    bench.table.put(0, "p/3", b"new")
    bench.table.put(0, "p/9", b"new")
    bench.table.put(0, "q/1", b"other")
    bench.table.put(0, "p/4", b"changed")
    bench.table.delete(0, "p/6")
    expected = {**stored, "p/3": b"new", "p/9": b"new", "p/4": b"changed"}
    del expected["p/6"]
    assert list(bench.table.scan(0, "p/")) == sorted(expected.items())


async def test_a_scan_shows_no_entry_of_the_tables_own(bench: Bench) -> None:
    raised = bench.table.raise_epoch(0, Owner(7, "abc"))
    bench.table.put(0, "a", b"1")
    assert list(bench.table.scan(0, "")) == [("a", b"1")]
    await bench.changelog.acknowledge(0, 0)
    await raised
    assert list(bench.table.scan(0, "")) == [("a", b"1")]


@pytest.mark.parametrize("key", ["", "\x00t"])
async def test_keys_that_would_be_ours_are_refused(bench: Bench, key: str) -> None:
    with pytest.raises(ValueError, match="can't be a key"):
        bench.table.put(0, key, b"1")


async def test_an_epoch_is_a_record_like_others_and_is_read_back(bench: Bench) -> None:
    assert bench.table.last_owner(0) is None
    raised = bench.table.raise_epoch(0, Owner(7, "abc"))
    assert bench.changelog.sent[0][1:] == (
        b'{"epoch":7,"instance":"abc","taken_ms":0,"taken_from":-1}',
        [("rowmill_epoch", b"7")],
    )
    await bench.changelog.acknowledge(0, 0)
    await raised
    assert bench.table.last_owner(0) == Owner(7, "abc")
