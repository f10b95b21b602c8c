"""Tables: the changelog first, the store never ahead, recovery by epoch."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from rowmill.settings import Settings
from rowmill.streams.engine.stores import PartitionStore
from rowmill.topics.catalogue import ROWS_CHANGELOG
from tests.integration.engine.stage import PuppetProcess, Start, read, write
from tests.kit.until import until_sync

pytestmark = pytest.mark.broker


def entries(worker: PuppetProcess, partition: int = 0) -> dict[str, str]:
    found: dict[str, str] = worker.ask("scan", partition=partition)["entries"]
    return found


@pytest.mark.behaviour("R1")
def test_an_entry_is_in_the_overlay_until_its_changelog_record_is_acknowledged(
    settings: Settings, puppet: Start
) -> None:
    """The store is never ahead: killed before the acknowledgement, the entry never was."""
    slow = {"ROWMILL_PRODUCER_LINGER_MS": "3000"}
    worker = puppet(**slow).ready()
    worker.tell("put", partition=0, key="a", value=1)
    seen = worker.ask("get", partition=0, key="a")
    assert (seen["value"], seen["stored"]) == ("1", None)
    assert worker.wait("put", key="a")["error"] is None
    seen = worker.ask("get", partition=0, key="a")
    assert (seen["value"], seen["stored"]) == ("1", "1")
    worker.tell("put", partition=0, key="a", value=2)
    assert worker.ask("get", partition=0, key="a")["value"] == "2"
    worker.kill_9()

    again = puppet().ready()
    assert again.ask("get", partition=0, key="a")["value"] == "1"
    assert [record.value for record in asyncio.run(read(settings, ROWS_CHANGELOG))][1] == b"1"


@pytest.mark.behaviour("R1")
def test_kill_9_between_the_acknowledgement_and_the_store_loses_nothing(
    settings: Settings, puppet: Start
) -> None:
    """Faust persists the offset in a callback of its own: recovery then skips the entry."""
    worker = puppet(PUPPET_DIE_BEFORE_STORE="row/2").ready()
    worker.tell("put", partition=0, key="row/1", value=1)
    worker.wait("put", key="row/1")
    worker.tell("put", partition=0, key="row/2", value=2)
    worker.wait("dying")
    worker.process.wait()

    again = puppet().ready()
    assert entries(again) == {"row/1": "1", "row/2": "2", "last": '"row/2"'}


def test_a_store_that_was_deleted_is_rebuilt_equal(settings: Settings, puppet: Start) -> None:
    """Entries, deletions and what is derived: all of it is in the changelog."""
    worker = puppet().ready()
    for number in range(20):
        worker.tell("put", partition=0, key=f"row/{number}", value=number)
    for number in range(0, 20, 3):
        worker.tell("delete", partition=0, key=f"row/{number}")
    worker.tell("put", partition=0, key="row/5", value="again")
    worker.wait("put", key="row/5", after=len(worker.events) - 1)
    before = entries(worker)
    assert len(before) == 14
    assert worker.stop() == 0
    shutil.rmtree(worker.store / "tables")

    again = puppet().ready()
    assert entries(again) == before
    # Every ownership is an epoch of its own.
    first = worker.of("ready")[0]["epochs"]["0"]
    assert again.of("ready")[0]["epochs"]["0"] > first


def test_a_late_record_of_a_former_epoch_does_not_win(settings: Settings, puppet: Start) -> None:
    """KAFKA-12693: a cut-off owner's record arrives after its successor's; deletions hold too."""
    first = puppet().ready()
    for key in ("kept", "gone", "idle"):
        first.tell("put", partition=0, key=key, value="first")
    first.wait("put", key="idle")
    assert first.stop() == 0
    second = puppet().ready()
    second.tell("put", partition=0, key="kept", value="second")
    second.tell("delete", partition=0, key="gone")
    second.wait("delete")
    assert second.stop() == 0
    for key in ("kept", "gone", "never written since"):
        asyncio.run(write(settings, ROWS_CHANGELOG, 0, key, b'"late"', epoch=1))
    asyncio.run(write(settings, ROWS_CHANGELOG, 0, "kept", None, epoch=1))

    known = puppet().ready()
    assert entries(known) == {"kept": '"second"', "idle": '"first"'}
    assert known.stop() == 0
    shutil.rmtree(known.store / "tables")
    rebuilt = puppet().ready()
    assert entries(rebuilt) == {"kept": '"second"', "idle": '"first"'}


def test_a_new_owner_covers_late_records_of_the_former_so_that_its_own_are_the_last(
    settings: Settings, puppet: Start
) -> None:
    """KAFKA-12693 with compaction: only the last record of a key stays."""
    first = puppet("w0").ready()
    for key in ("kept", "gone"):
        first.tell("put", partition=0, key=key, value="first")
    first.wait("put", key="gone")
    assert first.stop() == 0
    second = puppet("w1").ready()
    second.tell("put", partition=0, key="kept", value="second")
    second.tell("delete", partition=0, key="gone")
    second.wait("delete")
    for key in ("kept", "gone", "unknown"):
        asyncio.run(write(settings, ROWS_CHANGELOG, 0, key, b'"late"', epoch=1))

    def last_of(key: str) -> bytes | None:
        records = asyncio.run(read(settings, ROWS_CHANGELOG))
        found: bytes | None = [one.value for one in records if one.key == key.encode()][-1]
        return found

    until_sync(
        lambda: last_of("kept") == b'"second"' and last_of("gone") is last_of("unknown") is None,
        within_s=30,
    )


def test_a_store_beyond_its_changelog_is_dropped_and_replayed(
    settings: Settings, puppet: Start
) -> None:
    """158: Faust crash-loops until someone deletes the directory. The other partition is kept."""
    worker = puppet().ready()
    worker.ask("put", partition=0, key="a", value=1)
    worker.ask("put", partition=1, key="b", value=2)
    assert worker.stop() == 0
    store = PartitionStore(worker.store / "tables" / "rows" / "0")
    store.write((), 1_000_000)
    store.close()

    again = puppet().ready()
    assert entries(again, 0) == {"a": "1"}
    assert entries(again, 1) == {"b": "2"}
    assert "store_dropped" in again.log
    assert again.log.count("store_dropped") == 1


def test_a_broken_store_is_dropped_and_replayed(settings: Settings, puppet: Start) -> None:
    """F27: bytes flipped on the disk."""
    worker = puppet().ready()
    worker.ask("put", partition=0, key="a", value=1)
    assert worker.stop() == 0
    for file in (worker.store / "tables" / "rows" / "0").glob("MANIFEST-*"):
        file.write_bytes(b"\xff" * file.stat().st_size)

    again = puppet().ready()
    assert entries(again) == {"a": "1"}


def test_a_worker_that_owns_nothing_refuses_reads_and_writes(
    settings: Settings, puppet: Start
) -> None:
    """Faust opens the database of a partition it does not own, and the write reaches the changelog."""
    worker = puppet().ready()
    for command in ("put", "get"):
        more: dict[str, Any] = {"value": 1} if command == "put" else {}
        refused = worker.ask(command, partition=7, key="a", **more)
        assert refused["error"] == "NotOwned"
        assert "partition 7" in refused["text"]
    until_sync(lambda: not (worker.store / "tables" / "rows" / "7").exists(), within_s=1)
