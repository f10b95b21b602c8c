"""Which table and columns a dataset has. Once given, a name stays: new columns are only added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, inspect, select, text
from sqlalchemy.dialects import sqlite

from rowmill.streams.adapters.sheet import schema
from rowmill.streams.core.columns import is_runtime_only
from rowmill.streams.core.names import SHEET_NAME_BYTES_MAX, sheet_columns, sheet_name

COLUMNS_MAX = 1_900
"""Columns of one dataset. SQLite stops at 2,000 (SQLITE_MAX_COLUMN), PostgreSQL at 1,600."""

_DIALECT = sqlite.dialect(paramstyle="qmark")


@dataclass(frozen=True)
class Layout:
    """A dataset's table. `inputs`, `outputs`: name -> sheet name, in order; `rows`: the table."""

    dataset: str
    table_name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    columns: tuple[str, ...] = field(init=False)
    """All sheet names, inputs first: what follows the internal columns of the table."""
    table: Table = field(init=False)
    upsert: str = field(init=False)
    """INSERT … ON CONFLICT that sets every column: a row is replaced as a whole."""

    def __post_init__(self) -> None:
        columns = (*self.inputs.values(), *self.outputs.values())
        if len(columns) > COLUMNS_MAX:
            raise ValueError(
                f'dataset("{self.dataset}") has {len(columns):,} columns; a sheet holds '
                f"{COLUMNS_MAX:,}"
            )
        table = schema.rows_table(self.table_name, columns)
        object.__setattr__(self, "columns", columns)
        insert = sqlite.insert(table)
        changed = {c.name: insert.excluded[c.name] for c in table.c if c.name != schema.ROW}
        statement = insert.on_conflict_do_update(index_elements=[schema.ROW], set_=changed)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "upsert", str(statement.compile(dialect=_DIALECT)))

    def lacks(self, inputs: Iterable[str], outputs: Iterable[str]) -> bool:
        """True where a name has no column yet."""
        return not (self.inputs.keys() >= set(inputs) and self.outputs.keys() >= set(outputs))


def load(connection: Connection, dataset: str) -> Layout | None:
    """Return a dataset's layout, None where the sheet does not have it."""
    datasets, columns = schema.DATASETS, schema.COLUMNS
    table_name = connection.execute(
        select(datasets.c.table_name).where(datasets.c.dataset == dataset)
    ).scalar()
    if table_name is None:
        return None
    found = connection.execute(
        select(columns.c.kind, columns.c.name, columns.c.column_name)
        .where(columns.c.dataset == dataset)
        .order_by(columns.c.place)
    ).all()
    return Layout(
        dataset,
        table_name,
        {name: column for kind, name, column in found if kind == "input"},
        {name: column for kind, name, column in found if kind == "output"},
    )


def ensure(
    connection: Connection, dataset: str, inputs: Sequence[str], outputs: Sequence[str]
) -> Layout:
    """Return the dataset's layout with at least these columns, making what is missing.

    Runtime-only outputs get no column (D7). Raises: ValueError above COLUMNS_MAX.
    """
    outputs = [name for name in outputs if not is_runtime_only(name)]
    layout = load(connection, dataset)
    if layout is None:
        return _create(connection, dataset, inputs, outputs)
    if not layout.lacks(inputs, outputs):
        return layout
    return _extend(connection, layout, inputs, outputs)


def _create(
    connection: Connection, dataset: str, inputs: Sequence[str], outputs: Sequence[str]
) -> Layout:
    names = sheet_columns(inputs, outputs)
    layout = Layout(
        dataset, _table_name(connection, dataset), dict(names.inputs), dict(names.outputs)
    )
    layout.table.create(connection)
    # For reading a run by place: OFFSET over a million rows takes 100 times as long.
    connection.execute(
        text(
            f'CREATE INDEX "_rowmill_by_index_{layout.table_name}" '
            f'ON "{layout.table_name}" ("{schema.RUN}", "{schema.INDEX}")'
        )
    )
    connection.execute(
        schema.DATASETS.insert().values(dataset=dataset, table_name=layout.table_name)
    )
    _note_columns(connection, dataset, "input", layout.inputs, first=0)
    _note_columns(connection, dataset, "output", layout.outputs, first=0)
    return layout


def _extend(
    connection: Connection, layout: Layout, inputs: Sequence[str], outputs: Sequence[str]
) -> Layout:
    taken = {*layout.inputs.values(), *layout.outputs.values()}
    new_inputs = _new_names(layout.inputs, inputs, taken)
    new_outputs = _new_names(layout.outputs, outputs, taken)
    extended = Layout(
        layout.dataset,
        layout.table_name,
        {**layout.inputs, **new_inputs},
        {**layout.outputs, **new_outputs},
    )
    for column in (*new_inputs.values(), *new_outputs.values()):
        connection.execute(text(f'ALTER TABLE "{layout.table_name}" ADD COLUMN "{column}" TEXT'))
    _note_columns(connection, layout.dataset, "input", new_inputs, first=len(layout.inputs))
    _note_columns(connection, layout.dataset, "output", new_outputs, first=len(layout.outputs))
    return extended


def _new_names(known: Mapping[str, str], wanted: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Return a sheet name for each name that has none; `taken` grows by them."""
    folded = {column.casefold() for column in taken}
    given: dict[str, str] = {}
    for name in wanted:
        if name not in known and name not in given:
            given[name] = _free(sheet_name(name), folded)
            folded.add(given[name].casefold())
    taken.update(given.values())
    return given


def _table_name(connection: Connection, dataset: str) -> str:
    """Return a free table name; a user's own table in the same file is never written."""
    found = inspect(connection)
    folded = {name.casefold() for name in (*found.get_table_names(), *found.get_view_names())}
    name = sheet_name(dataset)
    # SQLite keeps names that begin with sqlite_ for itself.
    return _free("x" + name if name.casefold().startswith("sqlite_") else name, folded)


def _free(name: str, folded: set[str]) -> str:
    number, free = 1, name
    while free.casefold() in folded:
        number += 1
        suffix = f"_{number}"
        stem = name.encode()[: SHEET_NAME_BYTES_MAX - len(suffix)].decode(errors="ignore")
        free = stem + suffix
    return free


def _note_columns(
    connection: Connection, dataset: str, kind: str, columns: Mapping[str, str], *, first: int
) -> None:
    if columns:
        connection.execute(
            schema.COLUMNS.insert(),
            [
                {"dataset": dataset, "kind": kind, "name": name, "column_name": column,
                 "place": place}
                for place, (name, column) in enumerate(columns.items(), first)
            ],
        )  # fmt: skip
