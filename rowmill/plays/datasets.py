"""A dataset as a play declares it: a name, a key, and columns in order (D1)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rowmill.plays.context import RowContext
from rowmill.plays.sites import Site, brief, here
from rowmill.plays.tools import Tool, ToolCall
from rowmill.streams.core.columns import Row

OnError = Literal["fail", "continue"]
Condition = Callable[[Row], object]
"""Whether a row qualifies, or a column is worked out: a plain function whose answer is true or not."""

PlainFunction = Callable[[Row], Any]
Resolver = Callable[[Row, RowContext], Awaitable[Any]]
Source = ToolCall[Any] | PlainFunction | Resolver
"""What works a column out."""

Key = str | Sequence[str] | Callable[[Mapping[str, Any]], Any]
"""What makes a row the same row (I1): a column, several, or a function of the input values."""


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """A column as it stands in the play."""

    name: str
    source: Source
    when: Condition | None
    on_error: OnError
    replace: bool
    site: Site


class Dataset:
    """Rows and the columns to add to them. It never changes: `with_column` returns a new one.

    >>> companies = (
    ...     Dataset("companies", key="Symbol", when=lambda row: row["Symbol"] != "ALL")
    ...     .with_column("label", lambda row: f"{row['Security']} ({row['Symbol']})")
    ...     .with_column("shout", lambda row: row["label"].upper(), on_error="continue")
    ... )
    >>> companies.name, [column.name for column in companies.columns]
    ('companies', ['label', 'shout'])

    Args:
        name: part of every row's identity; letters, digits, `_`, `.`, `-`, at most 100.
        key: a column, several, or a function of the input values; unset: the whole row (I1). Of
            rows with the same key the first is worked on, the others are duplicates.
        when: a row for which it is false is skipped, and counted.

    Raises: PlayError naming file and line.
    """

    def __init__(self, name: str, *, key: Key | None = None, when: Condition | None = None) -> None:
        self.site = here()
        self.name = name
        self.when = when
        self.columns: tuple[ColumnDeclaration, ...] = ()
        self.parent: Dataset | None = None
        self.key: Key | None = key if key is None or callable(key) else _key_columns(key, self)
        if not _is_identifier(name):
            self.site.refuse(
                f"Dataset({name!r}): a name begins with a letter and has letters, digits, "
                "_, . and -, at most 100."
            )
        if when is not None:
            _check_plain(when, f'Dataset "{name}": when', self.site)

    def with_column(
        self,
        name: str,
        source: Source,
        *,
        when: Condition | None = None,
        on_error: OnError = "fail",
        replace: bool = False,
    ) -> Dataset:
        """Return the dataset with one more column. It sees the input and the columns before it.

        Args:
            name: of the column; one that begins with `_` is not kept (D7).
            source: a declarative tool call, `async def (row, ctx)`, or a plain function of the row
                that does no I/O.
            when: where it is false the cell is skipped and its value None (D4).
            on_error: "fail" ends the row as failed; "continue" leaves a failed cell and the value
                None (D3).
            replace: export in place of the input column of the same name, instead of beside it.

        Raises: PlayError naming file and line.
        """
        site = here()
        what = f"column {name!r}"
        for column in self.columns:
            if column.name == name:
                site.refuse(f'column "{name}" stands twice; the first is at {column.site}.')
        if not isinstance(name, str) or not name.strip():
            site.refuse(f"{what}: a column needs a name.")
        if on_error not in ("fail", "continue"):
            site.refuse(f'{what}: on_error is "fail" or "continue", not {on_error!r}.')
        if when is not None:
            _check_plain(when, f"{what}: when", site)
        _check_source(source, what, site)
        grown = copy.copy(self)
        grown.parent = self
        grown.columns = (
            *self.columns,
            ColumnDeclaration(name, source, when, on_error, replace, site),
        )
        return grown

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, columns={[column.name for column in self.columns]})"


def is_async(function: Any) -> bool:
    """Return whether calling `function` gives an awaitable: `async def`, or such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - asks what kind of call, not whether
    )


def _key_columns(key: Any, dataset: Dataset) -> tuple[str, ...]:
    columns = (key,) if isinstance(key, str) else key
    if (
        not isinstance(columns, Sequence)
        or not columns
        or not all(isinstance(column, str) and column for column in columns)
    ):
        dataset.site.refuse(
            f'Dataset "{dataset.name}": key is a column, a list of columns or a function, '
            f"not {brief(key)}."
        )
    return tuple(columns)


def _is_identifier(name: Any) -> bool:
    return (
        isinstance(name, str)
        and name.isascii()
        and 1 <= len(name) <= 100
        and name[0].isalpha()
        and all(char.isalnum() or char in "_.-" for char in name)
    )


def _check_source(source: Any, what: str, site: Site) -> None:
    if isinstance(source, ToolCall):
        return
    if isinstance(source, Tool):
        site.refuse(f"{what}: say what to ask: {source.id}(…=col(…)).")
    if not callable(source):
        site.refuse(f"{what}: a tool call or a function is wanted, not {brief(source)}.")
    if inspect.isgeneratorfunction(source) or inspect.isasyncgenfunction(source):
        site.refuse(f"{what}: a column has one value; return it instead of yielding.")
    if is_async(source):
        if not _takes(source, 2):
            site.refuse(f"{what}: a resolver is `async def (row, ctx)`.")
    elif not _takes(source, 1):
        hint = "; one that calls tools must be `async def (row, ctx)`" if _takes(source, 2) else ""
        site.refuse(f"{what}: a plain function takes the row alone{hint}.")


def _check_plain(function: Any, what: str, site: Site) -> None:
    if not callable(function) or is_async(function) or not _takes(function, 1):
        site.refuse(f"{what}: a plain function of the row is wanted, such as lambda row: …")


def _takes(function: Any, arguments: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins do not tell
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True
