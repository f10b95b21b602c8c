"""One partition of a table on disk: entries, their epochs, and how far its changelog is applied.

Layout of the RocksDB database (private; rebuilt from the changelog at any time). Keys of entries
are UTF-8 text and never start with NUL; what starts with NUL is ours:

    <key>          8-byte epoch, value             an entry
    NUL t <key>    8-byte epoch, 8-byte wall ms     a tombstone: a late record of an older epoch
                                                   must not bring the entry back
    NUL m          8-byte offset, 8-byte wall ms    next changelog offset to apply, last write
    NUL a          nothing                          entries are here that lie beyond that offset

Numbers are big-endian. Entries and the offset that they came with are written in one batch, so the
store is never ahead of its changelog and never skips a record of it.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import structlog
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from rowmill.errors import InfrastructureError

log = structlog.get_logger(__name__)

BLOCK_CACHE_BYTES = 32 << 20
WRITE_BUFFER_BYTES = 8 << 20
OPEN_FILES_MAX = 256
BLOOM_BITS = 10
"""Faust's defaults cost 2 GiB of block cache and three write buffers of 64 MiB a partition."""

STORE_AGE_MAX_MS = 43_200_000
"""12 h: half of Kafka's default `delete.retention.ms`. The changelog of a store that was not
written for longer may have lost tombstones that the store needs: it is rebuilt."""

TOMBSTONE_AGE_MAX_MS = 7 * 86_400_000
"""How long a deletion's epoch is kept against late records of older epochs."""

_EPOCH = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")
_META = b"\x00m"
_TOMBSTONE = b"\x00t"
_AHEAD = b"\x00a"
_REBUILD = "rebuild"


class StoreFailed(InfrastructureError):
    """A store can't be read or written. What the changelog holds is not lost."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(
            f"{path}: the local store failed: {error}. Free disk space where it is full, then start"
            " the worker again; a broken store is rebuilt from its changelog."
        )


@dataclass(slots=True)
class Entry:
    """One write: `value` None deletes. `key` is UTF-8 text, not empty, without a leading NUL."""

    key: bytes
    value: bytes | None
    epoch: int


class PartitionStore:
    """The store of one partition. Reads and writes block for microseconds; not thread safe."""

    def __init__(self, path: Path) -> None:
        """Open `path`, dropped first where it is broken. Raises: StoreFailed."""
        self.path = path
        if (path / _REBUILD).exists():
            self._drop("marked for a rebuild")
        try:
            self._db = self._open()
        except Exception as error:
            if not _is_corruption(error):  # a full disk, a lock, descriptors: nothing is broken
                raise StoreFailed(path, error) from error
            # A byte flipped on the disk: the changelog has everything (F27).
            self._drop(str(error))
            try:
                self._db = self._open()
            except Exception as again:
                raise StoreFailed(path, again) from again
        self.next_offset: int | None
        self.written_ms: int
        self.next_offset, self.written_ms = self._read_meta()
        self.ahead = self._read(_AHEAD) is not None
        if self.next_offset is not None and _wall_ms() - self.written_ms > STORE_AGE_MAX_MS:
            self.destroy("not written for 12 h: its changelog may have lost tombstones")

    def get(self, key: bytes) -> bytes | None:
        """Return an entry's value, None where there is none. Raises: StoreFailed."""
        found = self._read(key)
        return None if found is None else found[8:]

    def epochs(self, keys: Sequence[bytes]) -> list[int]:
        """Return the epoch of each key's entry or tombstone, -1 where there is neither."""
        found = self._read_many(list(keys))
        missing = [place for place, value in enumerate(found) if value is None]
        if missing:
            buried = self._read_many([_TOMBSTONE + keys[place] for place in missing])
            for place, value in zip(missing, buried, strict=True):
                found[place] = value
        return [-1 if value is None else _EPOCH.unpack_from(value)[0] for value in found]

    def write(self, entries: Iterable[Entry], next_offset: int, *, ahead: bool = False) -> None:
        """Write `entries`, the later of one key winning, and the offset, in one batch.

        `ahead`: they lie beyond that offset, behind a record that was not applied. The store can't be
        brought up to date any more, and is built anew: it may hold what counts for nobody.
        Raises: StoreFailed; then nothing of it was written.
        """
        now_ms = _wall_ms()
        batch = WriteBatch(raw_mode=True)
        for entry in entries:
            epoch = _EPOCH.pack(entry.epoch)
            if entry.value is None:
                batch.delete(entry.key)
                batch.put(_TOMBSTONE + entry.key, _PAIR.pack(entry.epoch, now_ms))
            else:
                batch.put(entry.key, epoch + entry.value)
        batch.put(_META, _PAIR.pack(next_offset, now_ms))
        if ahead:
            batch.put(_AHEAD, b"")
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._failed(error) from error
        self.next_offset = next_offset
        self.written_ms = now_ms
        self.ahead = self.ahead or ahead

    def touch(self) -> None:
        """Note that the store is up to date now: its age counts from here."""
        if self.next_offset is not None:
            self.write((), self.next_offset)

    def scan(self, prefix: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` entries whose keys start with `prefix`, in order, after `after`.

        The iterator is closed before it returns: an open one keeps the database's lock.
        """
        found: list[tuple[bytes, bytes]] = []
        iterator: Any = None
        try:
            iterator = self._db.iter()
            iterator.seek(prefix if after is None else after + b"\x00")
            while iterator.valid() and len(found) < limit:
                key = iterator.key()
                if not key.startswith(prefix):
                    break
                if key[:1] != b"\x00":
                    found.append((key, iterator.value()[8:]))
                iterator.next()
            iterator.status()
        except Exception as error:
            raise self._failed(error) from error
        finally:
            del iterator
        return found

    def bury(self) -> int:
        """Remove tombstones that no late record can need any more. Returns how many.

        Raises: StoreFailed.
        """
        oldest = _wall_ms() - TOMBSTONE_AGE_MAX_MS
        batch, iterator = WriteBatch(raw_mode=True), None
        try:
            iterator = self._db.iter()
            iterator.seek(_TOMBSTONE)
            while iterator.valid() and iterator.key().startswith(_TOMBSTONE):
                if _PAIR.unpack(iterator.value())[1] < oldest:
                    batch.delete(iterator.key())
                iterator.next()
            iterator.status()
            removed = len(batch)
            if removed:
                self._db.write(batch)
        except Exception as error:
            raise self._failed(error) from error
        finally:
            del iterator
        return removed

    def destroy(self, reason: str) -> None:
        """Drop everything and begin with an empty store. Raises: StoreFailed."""
        self.close()
        self._drop(reason)
        try:
            self._db = self._open()
        except Exception as error:
            raise StoreFailed(self.path, error) from error
        self.next_offset, self.written_ms, self.ahead = None, 0, False

    def close(self) -> None:
        """Close the database and give up its lock.

        What RocksDB can't bring into its tables now (a full disk) is in its own log, or in ours.
        """
        try:
            self._db.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises no other
            log.warning("store_not_flushed", store=str(self.path), reason=str(error))

    def _open(self) -> Rdict:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Rdict(str(self.path), _options())

    def _drop(self, reason: str) -> None:
        log.warning("store_dropped", store=str(self.path), reason=reason)
        shutil.rmtree(self.path, ignore_errors=True)

    def _read_meta(self) -> tuple[int | None, int]:
        meta = self._read(_META)
        if meta is None:
            return None, 0
        next_offset, written_ms = _PAIR.unpack(meta)
        return next_offset, written_ms

    def _read(self, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._failed(error) from error
        return found

    def _read_many(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            found: list[bytes | None] = cast(Any, self._db).get(keys)
        except Exception as error:
            raise self._failed(error) from error
        return found

    def _failed(self, error: Exception) -> StoreFailed:
        if _is_corruption(error):
            # The next start drops this store and replays instead of failing at the same block.
            with contextlib.suppress(OSError):
                (self.path / _REBUILD).touch()
        return StoreFailed(self.path, error)


def _options() -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_keep_log_file_num(1)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(_shared_cache())
    blocks.set_bloom_filter(BLOOM_BITS, False)
    options.set_block_based_table_factory(blocks)
    return options


_cache: Cache | None = None


def _shared_cache() -> Cache:
    """One block cache for all partitions of the process."""
    global _cache
    if _cache is None:
        _cache = Cache(BLOCK_CACHE_BYTES)
    return _cache


def _is_corruption(error: Exception) -> bool:
    """True where RocksDB says that its files are broken; it tells kinds of errors by text only."""
    return str(error).startswith("Corruption")


def _wall_ms() -> int:
    """Wall clock: only ever decides to rebuild or to forget a tombstone after days."""
    return time.time_ns() // 1_000_000
