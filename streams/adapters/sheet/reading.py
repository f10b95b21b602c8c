"""The reading side, for the client, the command line and the page: many processes, never a writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from sqlalchemy import Connection, Select, and_, func, select
from sqlalchemy.exc import DBAPIError

from rowmill.errors import UsageError
from rowmill.streams.adapters.sheet import layout as layouts
from rowmill.streams.adapters.sheet import schema
from rowmill.streams.adapters.sheet.cells import CellMeta
from rowmill.streams.adapters.sheet.url import check_readable, sheet_file
from rowmill.streams.core.names import Columns, sheet_columns
from rowmill.streams.ports import SheetUnusable, Source

PAGE_ROWS = 1_000
"""Rows read at once where a caller iterates."""

KEYS_MAX = 500
"""Row ids of one look-up."""

_decode_metas = msgspec.json.Decoder(dict[str, CellMeta]).decode


class DatasetMissing(UsageError):
    """The sheet holds no such dataset. The message lists those that it holds."""


@dataclass(frozen=True, slots=True)
class SheetRow:
    """A row as the sheet holds it.

    `values`, `outputs`: by the names of input and play, as text (None: no value, or no cell yet);
    a value that is no string is its JSON text, and its `CellMeta.json` is set. `input_cells`,
    `output_cells`: what is known of each cell; an input cell mostly has no entry.
    """

    row: str
    index: int
    status: str
    error: str | None
    failed_column: str | None
    run: str
    run_number: int
    life: int
    values: Mapping[str, str | None]
    outputs: Mapping[str, str | None]
    input_cells: Mapping[str, CellMeta] = field(default_factory=dict)
    output_cells: Mapping[str, CellMeta] = field(default_factory=dict)


class SheetReader:
    """Reads one sheet. Each call sees the state of one moment; a context manager closes it.

    Raises: SheetUnusable where the URL or file is not as needed, or the sheet is of another format.
    """

    def __init__(self, url: str) -> None:
        self.path = sheet_file(url)
        check_readable(self.path)
        self._engine = schema.sqlite_engine(self.path, writer=False)
        with self._snapshot() as connection:
            if not self._engine.dialect.has_table(connection, schema.FORMATS.name):
                raise SheetUnusable(
                    f"{self.path} is a database, but no sheet: rowmill never wrote it."
                )
            found = connection.execute(select(schema.FORMATS.c.version)).scalar()
            schema.check_format(found, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def datasets(self) -> list[str]:
        """Return the names of all datasets, sorted."""
        with self._snapshot() as connection:
            query = select(schema.DATASETS.c.dataset).order_by(schema.DATASETS.c.dataset)
            return list(connection.execute(query).scalars())

    def runs(self, dataset: str) -> list[str]:
        """Return the runs of which the dataset still holds rows, the newest last."""
        with self._snapshot() as connection:
            rows = self._layout(connection, dataset).table
            query = (
                select(rows.c[schema.RUN])
                .group_by(rows.c[schema.RUN])
                .order_by(func.max(rows.c[schema.RUN_NUMBER]))
            )
            return list(connection.execute(query).scalars())

    def table_name(self, dataset: str) -> str:
        """Return the dataset's table, for SQL of one's own."""
        with self._snapshot() as connection:
            return self._layout(connection, dataset).table_name

    def columns(self, dataset: str) -> Columns:
        """Return what the dataset's columns are called: as given, in SQL, and in an export."""
        with self._snapshot() as connection:
            layout = self._layout(connection, dataset)
            exports = sheet_columns(tuple(layout.inputs), tuple(layout.outputs)).exports
            return Columns(inputs=layout.inputs, outputs=layout.outputs, exports=exports)

    def next_offsets(self, source: Source) -> dict[int, int]:
        """Return, by partition, the first offset that the sheet does not hold."""
        with self._snapshot() as connection:
            offsets = schema.OFFSETS
            query = select(offsets.c.partition, offsets.c.next).where(
                offsets.c.reader == source.reader, offsets.c.topic == source.topic
            )
            return {row.partition: row.next for row in connection.execute(query)}

    def counts(self, dataset: str, run: str) -> dict[str, int]:
        """Return the rows of a run by status, from the counts that every transaction keeps."""
        with self._snapshot() as connection:
            counts = schema.COUNTS
            query = select(counts.c.status, counts.c.rows).where(
                counts.c.dataset == dataset, counts.c.run == run, counts.c.rows > 0
            )
            return {row.status: row.rows for row in connection.execute(query)}

    def page(
        self,
        dataset: str,
        run: str | None = None,
        *,
        after: tuple[int, str] | None = None,
        limit: int = PAGE_ROWS,
    ) -> list[SheetRow]:
        """Return up to `limit` rows in input order: of a run, or of the whole dataset.

        `after`: (index, row id) of the last row that the caller has.
        """
        with self._snapshot() as connection:
            layout = self._layout(connection, dataset)
            c = layout.table.c
            query = layout.table.select().order_by(c[schema.INDEX], c[schema.ROW]).limit(limit)
            if run is not None:
                query = query.where(c[schema.RUN] == run)
            if after is not None:
                index, row = after
                query = query.where(
                    (c[schema.INDEX] > index) | and_(c[schema.INDEX] == index, c[schema.ROW] > row)
                ).where(c[schema.INDEX] >= index)
            return list(_rows(connection, layout, query))

    def rows(self, dataset: str, run: str | None = None) -> Iterator[SheetRow]:
        """Iterate in input order, a page at a time: memory stays small, no lock is kept."""
        after: tuple[int, str] | None = None
        while page := self.page(dataset, run, after=after):
            yield from page
            after = page[-1].index, page[-1].row

    def lookup(self, dataset: str, row_ids: Sequence[str]) -> dict[str, SheetRow]:
        """Return the rows that the sheet holds of these, by row id; missing ones are absent."""
        wanted = list(dict.fromkeys(row_ids))
        found: dict[str, SheetRow] = {}
        with self._snapshot() as connection:
            layout = self._layout(connection, dataset)
            for start in range(0, len(wanted), KEYS_MAX):
                keys = wanted[start : start + KEYS_MAX]
                query = layout.table.select().where(layout.table.c[schema.ROW].in_(keys))
                found.update((row.row, row) for row in _rows(connection, layout, query))
        return found

    def _layout(self, connection: Connection, dataset: str) -> layouts.Layout:
        layout = layouts.load(connection, dataset)
        if layout is None:
            query = select(schema.DATASETS.c.dataset).order_by(schema.DATASETS.c.dataset)
            held = ", ".join(f'"{name}"' for name in connection.execute(query).scalars())
            raise DatasetMissing(
                f'No dataset "{dataset}" in sheet {self.path}; it holds {held or "none yet"}.'
            )
        return layout

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection, connection.begin():
                yield connection
        except DBAPIError as error:
            raise SheetUnusable(f"Sheet {self.path} can't be read: {error.orig}.") from error


def _rows(connection: Connection, layout: layouts.Layout, query: Select[Any]) -> Iterator[SheetRow]:
    inputs = tuple(layout.inputs.items())
    outputs = tuple(layout.outputs.items())
    first_output = len(schema.INTERNAL) + len(inputs)
    for found in connection.execute(query):
        row, index, status, error, failed_column, run, number, life, _, cells = found[
            : len(schema.INTERNAL)
        ]
        metas = _decode_metas(cells)
        yield SheetRow(
            row=row,
            index=index,
            status=status,
            error=error,
            failed_column=failed_column,
            run=run,
            run_number=number,
            life=life,
            values=dict(
                zip(layout.inputs, found[len(schema.INTERNAL) : first_output], strict=True)
            ),
            outputs=dict(zip(layout.outputs, found[first_output:], strict=True)),
            input_cells={name: metas[column] for name, column in inputs if column in metas},
            output_cells={name: metas[column] for name, column in outputs if column in metas},
        )
