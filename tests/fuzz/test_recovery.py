"""Whatever lies in a changelog: entries are applied, what is none is refused, the rest is there."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rowmill.streams.dispatch.owner import Ownership, ReceiptStore
from rowmill.streams.engine.recovery import winners
from rowmill.streams.engine.tables import EPOCH_HEADER, EPOCH_KEY, EntryUnreadable, Owner, is_owner
from rowmill.streams.rows.entries import RowEntries, derive_counts
from rowmill.topics import codec
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import ODD_TEXTS, changed_wire
from tests.fuzz.records import ENTRIES, KEY, ROW, ROW_ENTRY, plain
from tests.fuzz.strict_engine import StrictApp, StrictTable

OWNER = b'{"epoch":3,"instance":"me","taken_ms":1,"taken_from":7}'
KEYS: list[bytes | None] = [
    None, b"", b"\0", b"\0m", b"\xff", b"!epoch", b"~counts/run", f"run/{ROW}".encode(), KEY.encode(),
    *(text.encode() for text in ODD_TEXTS[:20]),
]  # fmt: skip
EPOCHS = (b"1", b"2", b"", b"-1", b"x", b"9" * 30, b"\xff", b"1_0", b"0x1", "٣".encode())
GOOD = codec.encode(ROW_ENTRY)
RECEIPT = codec.encode(ENTRIES[1])


def record(key: bytes | None, value: bytes | None, epoch: bytes) -> SimpleNamespace:
    """Return a record as aiokafka gives it."""
    return SimpleNamespace(key=key, value=value, headers=((EPOCH_HEADER, epoch),), offset=0)


class NoStore:
    """A store that is empty, as at the first start: whatever may be applied is."""

    def epochs(self, keys: list[bytes]) -> list[int]:
        """As `PartitionStore.epochs`."""
        return [-1] * len(keys)


def recover(odd: SimpleNamespace, derive: Any, good: SimpleNamespace) -> StrictTable:
    """Apply an odd record, then a good one and an owner; return the table as it then is.

    The odd one may begin an epoch: the good one is of a higher.
    """
    records = [odd, good, record(EPOCH_KEY.encode(), OWNER, b"3")]
    store: Any = NoStore()
    entries, refused = winners(records, store, derive)
    assert 0 <= refused <= 1
    assert all(0 <= entry.epoch < 1 << 63 for entry in entries)
    table = StrictTable(StrictApp(), derive)
    for entry in entries:
        assert entry.key
        assert entry.key[0] != 0
        table.entries[0][entry.key.decode()] = entry.value or b""
    assert is_owner(table.entries[0][EPOCH_KEY])
    return table


def rebuild(odd: SimpleNamespace) -> None:
    """Recover both tables, and let their roles read what is there."""
    good = record(b"run/good", codec.encode(ROW_ENTRY.model_copy(update={"row": "good"})), b"3")
    rows: Any = recover(odd, derive_counts, good)
    entries = RowEntries(rows, rows.app.epoch)
    ended = entries.ended(0, "run", "good")
    assert ended is not None
    assert ended.status == "completed"
    assert entries._counts_of(0, "run").to_json()
    receipts: Any = recover(odd, None, record(b"good", good_receipt(), b"3"))
    kept = ReceiptStore(receipts, Ownership("me", receipts.app.epoch, *(None,) * 3))  # type: ignore[arg-type]
    found = kept.get(0, "good")
    assert found is not None
    assert found.state == "completed"
    for key in list(receipts.entries[0]):
        if not key.startswith("!"):
            try_both(entries, kept, key)


def try_both(entries: RowEntries, kept: ReceiptStore, key: str) -> None:
    """An entry is read, or the worker is told whose it is and what to do."""
    run, _, row = key.partition("/")
    for read in (lambda: kept.get(0, key), lambda: entries.ended(0, run, row)):
        try:
            read()
        except EntryUnreadable as error:
            check_words(error)


def check_words(error: Exception) -> None:
    assert "tombstone" in str(error)
    assert len(str(error)) < 2_000


def good_receipt() -> bytes:
    """Return the entry of a receipt called good."""
    return RECEIPT.replace(KEY.encode(), b"good", 1)


@fuzzed
@given(
    st.binary(min_size=2, max_size=2),
    several(changed_wire([plain(ROW_ENTRY), *map(plain, ENTRIES), {"epoch": 1, "instance": "x"}])),
)
@example(b"\0\0", [(0, GOOD)])  # no key: AttributeError, and the worker never started again
@example(b"\x04\0", [(0, b"\xff")])  # a key that is not UTF-8
@example(b"\x03\0", [(0, GOOD)])  # the store's own place for its offset
@example(b"\x07\0", [(0, b"{")])  # a value that is no entry: DecodeError in the derived counts
@example(b"\x07\x04", [(0, GOOD)])  # an epoch that is no number
@example(b"\x07\x05", [(0, GOOD)])  # one that no store can hold
@example(b"\x05\0", [(0, b"{")])  # an owner that is none
def test_any_changelog_is_recovered(drawn: bytes, changed: Sequence[tuple[int, bytes]]) -> None:
    def look() -> None:
        for place, (_, value) in enumerate(changed):
            key, epoch = KEYS[(drawn[0] + place) % len(KEYS)], EPOCHS[drawn[1] % len(EPOCHS)]
            rebuild(record(key, value, epoch))

    bounded(look)


def test_the_owner_of_the_examples_is_one() -> None:
    assert is_owner(OWNER)
    assert Owner(3, "me", 1, 7).epoch == 3
