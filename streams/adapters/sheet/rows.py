"""Rows into a dataset's table: who wins is judged first, then one statement writes the winners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError

from rowmill.streams.adapters.sheet import schema
from rowmill.streams.adapters.sheet.cells import CellMeta, stored, without_nul
from rowmill.streams.adapters.sheet.layout import Layout
from rowmill.streams.core.columns import is_runtime_only
from rowmill.streams.core.row_writes import (
    OPEN,
    RowWrite,
    Standing,
    Writer,
    judge,
    standing_after,
)

DATA_ERRORS = (
    DataError, IntegrityError, InterfaceError, OverflowError, ValueError, msgspec.MsgspecError,
)  # fmt: skip
"""What a single row's values can cause. All others are about the store, and nobody's row's fault."""

KEYS_PER_QUERY = 500
"""SQLite allows 32,766 parameters, its older builds 999."""

Ensure = Callable[[str, Sequence[str], Sequence[str]], Layout]


class RowsWriter:
    """Writes the rows of one transaction and counts what changed."""

    def __init__(self, connection: Connection, ensure: Ensure) -> None:
        self._connection = connection
        self._ensure = ensure
        self._changes: Counter[tuple[str, str, str]] = Counter()
        self.written = 0
        self.ignored = 0

    def write(self, dataset: str, writes: Sequence[RowWrite]) -> None:
        """Write a dataset's rows, in the order in which they came.

        Raises: one of DATA_ERRORS where a row's values can't be stored.
        """
        layout = self._layout(dataset, writes)
        standing = self._standing(layout, {write.row for write in writes})
        whole: dict[str, tuple[Any, ...]] = {}
        for write in writes:
            before = standing.get(write.row)
            verdict = judge(before, write)
            if verdict == "ignore":
                self.ignored += 1
                continue
            if verdict == "replace":
                whole[write.row] = _row_values(layout, write)
                self._count(dataset, before, standing_after(write))
            else:
                self._put(layout, whole)
                self._add_cells(layout, write)
            standing[write.row] = standing_after(write)
            self.written += 1
        self._put(layout, whole)

    def add_counts(self) -> None:
        """Bring the counts by run and status up to date; last, so that they are right or absent."""
        counts = schema.COUNTS
        new = insert(counts)
        upsert = new.on_conflict_do_update(
            index_elements=["dataset", "run", "status"],
            set_={"rows": counts.c.rows + new.excluded.rows},
        )
        for (dataset, run, status), rows in self._changes.items():
            if rows:
                self._connection.execute(
                    upsert, {"dataset": dataset, "run": run, "status": status, "rows": rows}
                )

    def _layout(self, dataset: str, writes: Sequence[RowWrite]) -> Layout:
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        for write in writes:
            inputs.update(dict.fromkeys(write.values))
            outputs.update(dict.fromkeys(write.cells))
        kept = [name for name in outputs if not is_runtime_only(name)]
        return self._ensure(dataset, tuple(inputs), kept)

    def _standing(self, layout: Layout, rows: set[str]) -> dict[str, Standing]:
        c = layout.table.c
        found: dict[str, Standing] = {}
        for keys in _pages(rows, KEYS_PER_QUERY):
            query = select(
                c[schema.ROW],
                c[schema.RUN_NUMBER],
                c[schema.LIFE],
                c[schema.EPOCH],
                c[schema.RUN],
                c[schema.STATUS],
            ).where(c[schema.ROW].in_(keys))
            for row, number, life, epoch, run, status in self._connection.execute(query):
                found[row] = Standing(Writer(number, life, epoch), run, status)
        return found

    def _put(self, layout: Layout, whole: dict[str, tuple[Any, ...]]) -> None:
        if whole:
            self._connection.exec_driver_sql(layout.upsert, list(whole.values()))
            whole.clear()

    def _add_cells(self, layout: Layout, write: RowWrite) -> None:
        """Set the cells of a patch and nothing else (S3)."""
        c = layout.table.c
        here = c[schema.ROW] == write.row
        cells = self._connection.execute(select(c[schema.CELLS]).where(here)).scalar_one()
        texts, metas = _outputs(layout, write)
        self._connection.execute(
            layout.table.update()
            .where(here)
            .values(
                {
                    schema.CELLS: _encode({**msgspec.json.decode(cells), **metas}),
                    schema.EPOCH: write.epoch,
                    **texts,
                }
            )
        )

    def _count(self, dataset: str, before: Standing | None, after: Standing) -> None:
        if before is not None:
            self._changes[dataset, before.run, before.status] -= 1
        self._changes[dataset, after.run, after.status] += 1


def _encode(metas: dict[str, Any]) -> str:
    return msgspec.json.encode(metas).decode()


def _row_values(layout: Layout, write: RowWrite) -> tuple[Any, ...]:
    """Return a row in the order of the table's columns."""
    texts, metas = _outputs(layout, write)
    for name, value in write.values.items():
        column = layout.inputs[name]
        texts[column], is_json, sanitised = stored(value)
        if is_json or sanitised:
            metas[column] = CellMeta(json=is_json, sanitised=sanitised)
    return (
        write.row,
        write.index,
        OPEN if write.is_patch else write.status,
        without_nul(write.error),
        write.failed_column,
        write.run,
        write.run_number,
        write.life,
        write.epoch,
        _encode(metas),
        *map(texts.get, layout.columns),
    )


def _outputs(layout: Layout, write: RowWrite) -> tuple[dict[str, str | None], dict[str, CellMeta]]:
    """Return the texts and the metadata of a row's cells, by sheet name."""
    texts: dict[str, str | None] = {}
    metas: dict[str, CellMeta] = {}
    for name, cell in write.cells.items():
        column = layout.outputs.get(name)
        if column is None:  # runtime-only (D7)
            continue
        texts[column], is_json, sanitised = stored(cell.value)
        metas[column] = CellMeta(
            cell.status,
            cell.provider,
            without_nul(cell.error),
            cell.completed_at_ms,
            cell.reused,
            is_json,
            sanitised,
        )
    return texts, metas


def _pages(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    every = list(keys)
    for start in range(0, len(every), size):
        yield every[start : start + size]
