"""Look at receipts without asking their owners: the newest record of each key in the changelog."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, Generic, TypeVar

import msgspec

from rowmill.client.owners import Owners
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.core.receipts import Receipt
from rowmill.topics.catalogue import RECEIPTS_CHANGELOG
from rowmill.topics.codec import UndecodableRecord, decode
from rowmill.topics.contracts import ReceiptEntry

T = TypeVar("T")


class _Failure(msgspec.Struct):
    kind: str
    message: str


class ReceiptLook(msgspec.Struct, frozen=True):
    """A receipt in a list: all but its output. Times are wall clock, `settled_wall_ms` None while
    it is open; `cost`: of its newest purchase."""

    key: str
    tool: str
    provider: str
    state: str
    sends: int
    cost: float
    opened_wall_ms: int
    settled_wall_ms: int | None
    failure: str | None


class Brief(msgspec.Struct):
    """What lists and wishes need of a receipt; msgspec skips its output unread."""

    key: str
    tool: str
    provider: str
    state: str
    sends: int = 0
    cost: float = 0
    opened_wall_ms: int = 0
    settled_wall_ms: int | None = None
    failure: _Failure | None = None

    @property
    def final(self) -> bool:
        """True where the receipt answers."""
        return self.state in ("completed", "failed", "skipped")


class _Entry(msgspec.Struct):
    receipt: Brief


_decode = msgspec.json.Decoder(_Entry).decode

_SCHEMA = """\
CREATE TABLE newest (
    key TEXT PRIMARY KEY, tool TEXT, provider TEXT, state TEXT,
    sends INTEGER, cost REAL, opened INTEGER, settled INTEGER, failure TEXT
) WITHOUT ROWID"""

_PUT = """\
INSERT OR REPLACE INTO newest VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""

_LIST = """\
SELECT key, tool, provider, state, sends, cost, opened, settled, failure FROM newest
WHERE state IS NOT NULL AND (?1 IS NULL OR tool = ?1) AND (?2 IS NULL OR state = ?2)
ORDER BY coalesce(settled, opened) DESC, key LIMIT ?3"""


async def list_receipts(
    settings: Settings, *, tool: str | None = None, state: str | None = None, limit: int
) -> list[ReceiptLook]:
    """Return receipts of one tool and state where named, the newest first, `limit` at most.

    However many there are, they need little memory: what is read is kept in a temporary file.
    Raises: LogUnreadable.
    """
    # Which record of a key is its newest is known at the end of the log only. A database without a
    # name lives in SQLite's cache and spills into a file that is gone with the connection.
    with closing(sqlite3.connect("")) as newest:
        newest.execute(_SCHEMA)
        owners = Owners()

        def put(record: LogRecord) -> None:
            found = _row(record) if owners.admit(record) else None
            if found is not None:
                newest.execute(_PUT, found)

        await read_receipts(settings, put)
        rows = newest.execute(_LIST, (tool, state, limit)).fetchall()
    return [ReceiptLook(*row) for row in rows]


async def read_receipts(settings: Settings, take: Callable[[LogRecord], None]) -> None:
    """Hand over every record that the receipts' changelog holds now. Raises: LogUnreadable."""
    await LogReader(settings, RECEIPTS_CHANGELOG, take).read_once()


class Newest(Generic[T]):
    """What the newest record of some keys says, as the changelog brings them.

    `read`: what to keep of a record's value; None of one that can't be read here.
    """

    def __init__(self, keys: Iterable[str], read: Callable[[bytes], T | None]) -> None:
        self._read = read
        self._owners = Owners()
        self._known: dict[str, T | None] = dict.fromkeys(keys)

    def apply(self, record: LogRecord) -> None:
        """Take in one record of the changelog; a former owner's late one changes nothing."""
        if self._owners.admit(record) and record.key in self._known:
            found = None if record.value is None else self._read(record.value)
            self._known[record.key] = found

    def get(self, key: str) -> T | None:
        """Return what is known of a key, None where it has no receipt, or it was forgotten."""
        return self._known[key]


async def find_receipt(settings: Settings, key: str) -> Receipt | None:
    """Return a receipt as it is stored, None where there is none. Raises: LogUnreadable."""
    newest = Newest([key], _whole)
    await read_receipts(settings, newest.apply)
    return newest.get(key)


def brief(value: bytes) -> Brief | None:
    """Return a receipt without its output."""
    try:
        return _decode(value).receipt
    except msgspec.MsgspecError:
        return None


def _whole(value: bytes) -> Receipt | None:
    try:
        return decode(ReceiptEntry, value).receipt
    except UndecodableRecord:
        return None


def _row(record: LogRecord) -> tuple[Any, ...] | None:
    """Return the row of a record; one without state for a tombstone, None for no receipt."""
    if record.value is None:
        return (record.key, *[None] * 8)
    found = brief(record.value)
    if found is None:
        return None
    failure = f"{found.failure.kind}: {found.failure.message}" if found.failure else None
    return (
        *(record.key, found.tool, found.provider, found.state, found.sends),
        *(found.cost, found.opened_wall_ms, found.settled_wall_ms, failure),
    )
