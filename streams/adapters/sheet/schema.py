"""The sheet's own tables, and the engine that opens a file.

Everything that is the sheet's own begins with `_rowmill_`; no dataset's table or column does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    create_engine,
    event,
    select,
)
from sqlalchemy.pool import NullPool

from rowmill.streams.ports import SheetUnusable

FORMAT = 1
"""Version of the tables below. A sheet of a later one is refused."""

BUSY_TIMEOUT_S = 5
"""How long a statement waits for another process's lock: a reader's checkpoint, a user's shell."""

own = MetaData()

FORMATS = Table("_rowmill_format", own, Column("version", Integer, primary_key=True))

DATASETS = Table(
    "_rowmill_datasets",
    own,
    Column("dataset", Text, primary_key=True),
    Column("table_name", Text, nullable=False, unique=True),
)

COLUMNS = Table(
    "_rowmill_columns",
    own,
    Column("dataset", Text, nullable=False),
    Column("kind", Text, nullable=False, doc="input or output"),
    Column("name", Text, nullable=False, doc="as the input's header or the play says"),
    Column("column_name", Text, nullable=False),
    Column("place", Integer, nullable=False, doc="order among the columns of its kind, from 0"),
    PrimaryKeyConstraint("dataset", "kind", "name"),
)

OFFSETS = Table(
    "_rowmill_offsets",
    own,
    Column("reader", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("next", Integer, nullable=False, doc="first offset that this sheet does not hold"),
    PrimaryKeyConstraint("reader", "topic", "partition"),
)

COUNTS = Table(
    "_rowmill_counts",
    own,
    Column("dataset", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("rows", Integer, nullable=False),
    PrimaryKeyConstraint("dataset", "run", "status"),
)
"""Rows by run and status, kept by every transaction: a GROUP BY over a million rows takes 0.9 s."""

ROW, INDEX, STATUS, ERROR, FAILED_COLUMN, RUN, RUN_NUMBER, LIFE, EPOCH, CELLS = (
    f"_rowmill_{name}"
    for name in (
        "row", "index", "status", "error", "failed_column", "run", "run_number", "life", "epoch",
        "cells",
    )
)  # fmt: skip

INTERNAL = (ROW, INDEX, STATUS, ERROR, FAILED_COLUMN, RUN, RUN_NUMBER, LIFE, EPOCH, CELLS)
"""The columns that stand before the dataset's own, in this order."""


def rows_table(name: str, columns: tuple[str, ...]) -> Table:
    """Return a dataset's table. All of its own columns are text: nothing is guessed about types."""
    text = {ROW, STATUS, ERROR, FAILED_COLUMN, RUN, CELLS}
    internal = [
        Column(
            column,
            Text if column in text else Integer,
            primary_key=column == ROW,
            nullable=column in (ERROR, FAILED_COLUMN),
        )
        for column in INTERNAL
    ]
    return Table(name, MetaData(), *internal, *(Column(column, Text) for column in columns))


def sqlite_engine(path: Path, *, writer: bool) -> Engine:
    """Return an engine for one SQLite file; a reader's connections can't write.

    Connections are not pooled: the writer holds one, readers come and go.
    """
    mode = "rw" if writer else "ro"
    engine = create_engine(
        "sqlite://",
        poolclass=NullPool,
        creator=lambda: _connect(path, mode),
    )

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # The driver would begin by itself at the first INSERT, after the statements before it.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    return engine


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    if mode == "rw":
        connection.execute("PRAGMA journal_mode=WAL")
        # A power cut may take the last transactions, never tear one: `next` goes with them, and
        # the sink reads those records again.
        connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def create_own_tables(connection: Connection, path: Path) -> None:
    """Create what is missing. Raises: SheetUnusable for a sheet of a later version."""
    own.create_all(connection)
    found = connection.execute(select(FORMATS.c.version)).scalar()
    if found is None:
        connection.execute(FORMATS.insert().values(version=FORMAT))
    else:
        check_format(found, path)


def check_format(found: Any, path: Path) -> None:
    """Raise SheetUnusable where this version can't read the sheet's tables."""
    if found != FORMAT:
        raise SheetUnusable(
            f"Sheet {path} has format {found}; this version reads {FORMAT}. Upgrade rowmill."
        )
