"""Receipts are read from their changelog: the newest record of the highest owner holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rowmill.client import receipts as receipts_module
from rowmill.client.forgetting import chunks
from rowmill.client.receipts import Newest, brief, list_receipts
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogRecord
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import CHUNK_KEYS, Failure, Lease, Receipt, State
from rowmill.topics.codec import encode
from rowmill.topics.contracts import ReceiptEntry


def record(
    key: str, state: State | None, *, epoch: int = 1, tool: str = "t", settled: int = 0
) -> LogRecord:
    """A record of the changelog; `state` None: a tombstone."""
    failure = Failure(FailureKind.TRANSIENT, "503") if state == "failed" else None
    value = None
    if state is not None:
        receipt = Receipt(
            key, tool, "p", state=state, sends=2, output={"big": "x" * 99}, failure=failure,
            settled_wall_ms=settled or None, opened_wall_ms=1, purchase="purchase",
            lease=Lease("lease", 1, "me", 20_000),
        )  # fmt: skip
        value = encode(ReceiptEntry(epoch=epoch, receipt=receipt))
    return LogRecord(0, 0, key, value, 0, (("rowmill_epoch", str(epoch).encode()),))


@pytest.fixture
def changelog(monkeypatch: pytest.MonkeyPatch) -> list[LogRecord]:
    """The changelog's records, which the test fills."""
    records: list[LogRecord] = []

    async def read(settings: Settings, take: Callable[[LogRecord], None]) -> None:
        for each in records:
            take(each)

    monkeypatch.setattr(receipts_module, "read_receipts", read)
    return records


async def listed(**filters: Any) -> list[str]:
    plain: dict[str, Any] = {"limit": 10} | filters
    return [look.key for look in await list_receipts(Settings(), **plain)]


async def test_the_newest_record_of_a_key_is_listed_newest_first(
    changelog: list[LogRecord],
) -> None:
    changelog += [
        record("a", "running"), record("b", "running"), record("a", "completed", settled=5),
        record("c", "failed", settled=9, tool="u"), LogRecord(0, 0, "!epoch", b"{}", 0, ()),
    ]  # fmt: skip
    found = await list_receipts(Settings(), limit=10)
    assert [(look.key, look.state) for look in found] == [
        ("c", "failed"), ("a", "completed"), ("b", "running"),
    ]  # fmt: skip
    assert found[0].failure == "transient: 503"
    assert await listed(limit=1) == ["c"]
    assert await listed(state="running") == ["b"]
    assert await listed(tool="u") == ["c"]


@pytest.mark.behaviour("R6")
async def test_a_late_record_of_a_former_owner_is_not_the_newest(
    changelog: list[LogRecord],
) -> None:
    changelog += [
        record("a", "completed", epoch=2, settled=5), record("a", "running", epoch=1),
        record("gone", "completed", epoch=2), record("gone", None, epoch=3),
        record("gone", "completed", epoch=2),
    ]  # fmt: skip
    (look,) = await list_receipts(Settings(), limit=10)
    assert (look.key, look.state) == ("a", "completed")
    newest = Newest(["a", "gone"], brief)
    for each in changelog:
        newest.apply(each)
    assert newest.get("gone") is None
    found = newest.get("a")
    assert found is not None
    assert found.final


async def test_a_forgotten_receipt_that_was_bought_again_is_listed(
    changelog: list[LogRecord],
) -> None:
    changelog += [record("a", "completed"), record("a", None), record("a", "failed", settled=3)]
    assert await listed(state="failed") == ["a"]


@pytest.mark.behaviour("R7")
def test_keys_are_asked_for_in_chunks_and_in_order() -> None:
    keys = [f"k{number}" for number in range(CHUNK_KEYS * 2 + 5)]
    cut = list(chunks(keys))
    assert [len(chunk) for chunk in cut] == [CHUNK_KEYS, CHUNK_KEYS, 5]
    assert [key for chunk in cut for key in chunk] == keys
