"""The writing side: a chunk in one transaction whose first statements advance `next`.

Whoever dies in between leaves either all of a chunk or nothing of it, rows and offsets together,
so the sheet itself knows what it holds (point 7 of the architecture).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError, DBAPIError

from rowmill.streams.adapters.sheet import layout as layouts
from rowmill.streams.adapters.sheet import schema
from rowmill.streams.adapters.sheet.lock import WriterLock
from rowmill.streams.adapters.sheet.rows import DATA_ERRORS, RowsWriter
from rowmill.streams.adapters.sheet.url import check_writable, sheet_file
from rowmill.streams.core.chunks import Chunk, Span
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.ports import (
    Flushed,
    RowsRefused,
    SheetBehind,
    SheetUnusable,
    SheetUnwritable,
    Source,
)

TRIES = 3
"""Transactions a flush begins before it gives up: `next` moves under it only if somebody else
writes for the same reader, which the writer's lock forbids."""


class _Moved(Exception):
    """`next` is not at the start of a span; the transaction is rolled back."""


class SqliteSheet:
    """Fulfils `ports.Sheet` on one SQLite file, for one thread at a time.

    Opening makes the file and the sheet's own tables and takes the exclusive writer's lock. Raises:
    SheetUnusable where the URL, the file or another writer stands in the way.
    """

    def __init__(self, url: str) -> None:
        self.path: Path = sheet_file(url)
        check_writable(self.path)
        self._lock = WriterLock(self.path)
        self._engine = schema.sqlite_engine(self.path, writer=True)
        self._connection: Connection | None = None
        self._inode = -1
        self._log_path = self.path.with_name(self.path.name + "-wal")
        self._log_inode = -1
        self._layouts: dict[str, layouts.Layout] = {}
        try:
            with self._transaction():
                pass  # connecting is the point
        except BaseException:
            self.close()
            raise

    def prepare(
        self, dataset: str, input_columns: Sequence[str], output_columns: Sequence[str]
    ) -> None:
        """Create the dataset's table, or add the columns it lacks. Idempotent."""
        with self._transaction() as connection:
            self._ensure(connection, dataset, input_columns, output_columns)

    def next_offsets(self, source: Source) -> Mapping[int, int]:
        """Return the offset the sheet wants next, of every partition it ever saw."""
        with self._transaction() as connection:
            return _next_offsets(connection, source)

    def flush(self, source: Source, chunk: Chunk[RowWrite]) -> Flushed:
        """Write a chunk as `ports.Sheet.flush` says."""
        spans = list(chunk.spans)
        had = 0
        for _ in range(TRIES):
            try:
                done = self._write(source, spans)
            except _Moved:
                spans, dropped = self._above_next(source, spans)
                had += dropped
                continue
            except DATA_ERRORS as error:
                raise self._refusal(spans, error) from error
            offsets = {span.partition: span.end for span in spans}
            missing = [span.partition for span in chunk.spans if span.partition not in offsets]
            if missing:
                offsets |= {p: n for p, n in self.next_offsets(source).items() if p in missing}
            return replace(done, next_offsets=offsets, had=had)
        raise SheetUnwritable(f"Sheet {self.path}: another sink moves its offsets. Stop one.")

    def close(self) -> None:
        """Close the connection; give up the exclusive writer's lock."""
        self._disconnect()
        self._engine.dispose()
        self._lock.release()

    def _write(self, source: Source, spans: Sequence[Span[RowWrite]]) -> Flushed:
        with self._transaction() as connection:
            for span in spans:
                if not _advance(connection, source, span):
                    raise _Moved
            rows = self._rows_writer(connection)
            for dataset, writes in _by_dataset(spans).items():
                rows.write(dataset, writes)
            rows.add_counts()
            return Flushed({}, written=rows.written, ignored=rows.ignored)

    def _rows_writer(self, connection: Connection) -> RowsWriter:
        return RowsWriter(
            connection, lambda *dataset_columns: self._ensure(connection, *dataset_columns)
        )

    def _above_next(
        self, source: Source, spans: Sequence[Span[RowWrite]]
    ) -> tuple[list[Span[RowWrite]], int]:
        """Return the spans without what the sheet has, and how many rows that were."""
        found = self.next_offsets(source)
        left: list[Span[RowWrite]] = []
        for span in spans:
            next_ = found.get(span.partition)
            if span.start is not None and (next_ is None or next_ < span.start):
                raise SheetBehind(
                    f"Sheet {self.path} is at offset {next_ or 0} of {source.topic}/"
                    f"{span.partition}, but was at {span.start} before: an older copy was put in "
                    "its place. The sink starts again and reads from there."
                )
            rest = span if next_ is None else span.from_offset(next_)
            if rest is not None:
                left.append(rest)
        rows = sum(len(span.rows) for span in spans) - sum(len(span.rows) for span in left)
        return left, rows

    def _refusal(self, spans: Sequence[Span[RowWrite]], error: Exception) -> RowsRefused:
        """Find the rows that the store refuses, each tried alone; nothing of this is kept."""
        reasons: dict[tuple[int, int], str] = {}
        for span in spans:
            for offset, write in zip(span.offsets, span.rows, strict=True):
                try:
                    with self._transaction(keep=False) as connection:
                        self._rows_writer(connection).write(write.dataset, [write])
                except DATA_ERRORS as cause:
                    reasons[span.partition, offset] = _words(cause)
        if not reasons:
            raise SheetUnwritable(f"Sheet {self.path}: {_words(error)}") from error
        return RowsRefused(reasons)

    def _ensure(
        self,
        connection: Connection,
        dataset: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> layouts.Layout:
        known = self._layouts.get(dataset)
        if known is None or known.lacks(inputs, outputs):
            known = layouts.ensure(connection, dataset, inputs, outputs)
            self._layouts[dataset] = known
        return known

    @contextmanager
    def _transaction(self, *, keep: bool = True) -> Iterator[Connection]:
        """One transaction on the writer's connection. Whatever fails is rolled back.

        Raises: SheetUnwritable for what the database says; errors of values pass through.
        """
        try:
            connection = self._connected()
            with connection.begin() as transaction:
                yield connection
                if not keep:
                    transaction.rollback()
        except DATA_ERRORS:
            self._layouts.clear()  # columns made in this transaction are rolled back with it
            raise
        except _Moved:
            raise
        except (DatabaseError, OSError) as error:
            # What the connection or the file came to is not known: begin anew the next time.
            self._disconnect()
            raise SheetUnwritable(f"Sheet {self.path} can't be written: {_words(error)}") from error
        except BaseException:
            self._disconnect()
            raise
        if not keep:
            self._layouts.clear()

    def _connected(self) -> Connection:
        """Return the connection, made again where the file is no longer the one that was opened.

        SQLite would go on writing into a deleted file, and nobody would ever see those rows.
        """
        if self._connection is not None:
            if _inode(self.path) != self._inode:
                self._disconnect()
                self._drop_log_of_replaced_file()
            else:
                self._log_inode = _inode(self._log_path)
        if self._connection is None:
            try:
                check_writable(self.path)
            except SheetUnusable as error:
                raise SheetUnwritable(str(error)) from error
            self._connection = self._engine.connect()
            self._inode = _inode(self.path)
            with self._connection.begin():
                schema.create_own_tables(self._connection, self.path)
        return self._connection

    def _drop_log_of_replaced_file(self) -> None:
        """Remove the write-ahead log that the replaced file left behind.

        SQLite keeps it when the database was moved away, and would replay it into the new file,
        where its pages do not belong (SQLite, "How To Corrupt", section 1.4).
        """
        if self._log_inode >= 0 and _inode(self._log_path) == self._log_inode:
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._log_inode = -1

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._layouts.clear()
        if connection is not None:
            try:
                connection.close()
            except DBAPIError:
                connection.invalidate()


def _advance(connection: Connection, source: Source, span: Span[RowWrite]) -> bool:
    """Move `next` from the span's start to its end. Returns: False where it is not at the start."""
    offsets = schema.OFFSETS
    place = {"reader": source.reader, "topic": source.topic, "partition": span.partition}
    if span.start is None:
        new = insert(offsets).values(next=span.end, **place).on_conflict_do_nothing()
        return connection.execute(new).rowcount == 1
    moved = (
        offsets.update()
        .where(*(offsets.c[name] == value for name, value in place.items()))
        .where(offsets.c.next == span.start)
        .values(next=span.end)
    )
    return connection.execute(moved).rowcount == 1


def _next_offsets(connection: Connection, source: Source) -> dict[int, int]:
    offsets = schema.OFFSETS
    found = connection.execute(
        select(offsets.c.partition, offsets.c.next).where(
            offsets.c.reader == source.reader, offsets.c.topic == source.topic
        )
    )
    return {row.partition: row.next for row in found}


def _by_dataset(spans: Sequence[Span[RowWrite]]) -> dict[str, list[RowWrite]]:
    found: dict[str, list[RowWrite]] = {}
    for span in spans:
        for write in span.rows:
            found.setdefault(write.dataset, []).append(write)
    return found


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return -1


def _words(error: BaseException) -> str:
    """Return what the driver said, without SQLAlchemy's statement and parameters: they hold cells."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(cause) or type(cause).__name__
