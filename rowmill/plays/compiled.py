"""A dataset made ready to run: what the rows role works from, row by row, without looking back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowmill.plays.context import RowContext
from rowmill.plays.datasets import ColumnDeclaration, Condition, Dataset, OnError, is_async
from rowmill.plays.sites import Site, brief
from rowmill.plays.specs import ToolSpec
from rowmill.plays.tools import Tool, ToolCall
from rowmill.plays.values import NotJson, to_json
from rowmill.streams.core.columns import NoSuchColumn, Row, is_blank, is_runtime_only
from rowmill.streams.core.identity import refused_row_id, row_id


@dataclass(frozen=True, slots=True)
class ToolWork:
    """A declarative tool call. `build(row)`: the question, a JSON object; raises NoSuchColumn or
    NotJson. The answer becomes the column's value by `tool.read`."""

    tool: Tool[Any]
    build: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ResolverWork:
    """An `async def (row, ctx)`. It may return `Skipped`."""

    function: Callable[[Row, RowContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PlainWork:
    """A plain function of the row, without I/O."""

    function: Callable[[Row], Any]


Work = ToolWork | ResolverWork | PlainWork


@dataclass(frozen=True, slots=True)
class CompiledColumn:
    """One column. `persisted`: False for runtime-only ones (D7). `site` stands in errors."""

    name: str
    work: Work
    when: Condition | None
    on_error: OnError
    persisted: bool
    replace: bool
    site: Site

    def to_json(self, value: Any, bytes_max: int | None = None) -> Any:
        """Return the column's value as its cell keeps it.

        Raises: NotJson naming the path, from the column's name on.
        """
        return to_json(value, f'column "{self.name}"', bytes_max=bytes_max)


@dataclass(frozen=True, slots=True)
class Identified:
    """Who an input row is. `refused`: why it can't run (it fails alone, with no call), else None."""

    row: str
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class CompiledDataset:
    """A dataset ready to run.

    `key_of`: the key of an input row as JSON, None where the dataset has none. `pure`: every column
    is a plain function (D6).
    """

    name: str
    key_of: Callable[[Mapping[str, Any]], Any] | None
    when: Condition | None
    columns: tuple[CompiledColumn, ...]
    pure: bool
    site: Site

    @property
    def output_columns(self) -> tuple[str, ...]:
        """Names of the columns that are kept, in order."""
        return tuple(column.name for column in self.columns if column.persisted)

    @property
    def replaced_columns(self) -> tuple[str, ...]:
        """Names of the columns that the export writes in place of an input column."""
        return tuple(column.name for column in self.columns if column.replace)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Tools of the declarative columns, each once. A resolver may ask others of the play."""
        works = (column.work for column in self.columns)
        found = {work.tool.id: work.tool.spec for work in works if isinstance(work, ToolWork)}
        return tuple(found.values())

    def identify(
        self, values: Mapping[str, Any], index: int, refused: str | None = None
    ) -> Identified:
        """Return who an input row is (I1). Never raises for what the row or the key function does.

        Args: `index`: place in the input, from 0. `refused`: why its reader refused the row.

        A row whose key is empty or can't be worked out is refused: alone, under an identity of its
        own (of its index), so it is nobody's duplicate. A blank row has none to fail by: it is
        identified as a whole and skipped (`qualifies`).
        """
        if refused is not None:
            return self._refuse(index, refused)
        if self.key_of is None or is_blank(values):
            return Identified(row_id(self.name, None, values))
        try:
            key = to_json(self.key_of(values), "the key")
        except Exception as error:  # noqa: BLE001 - the play's own code: its row fails alone
            return self._refuse(index, f"the key can't be worked out: {reason_of(error)}")
        if _is_empty(key):
            return self._refuse(index, f"{self._key_named(values, key)} is empty")
        return Identified(row_id(self.name, key, values))

    def qualifies(self, values: Mapping[str, Any]) -> bool:
        """Return whether an input row runs; one that does not is skipped.

        Blank rows do not, nor those for which the dataset's `when` is false. Raises: whatever
        `when` raises; the row fails with it.
        """
        if is_blank(values):
            return False
        return self.when is None or bool(self.when(Row(values, {})))

    def _refuse(self, index: int, reason: str) -> Identified:
        return Identified(refused_row_id(self.name, index), reason)

    def _key_named(self, values: Mapping[str, Any], key: Any) -> str:
        if isinstance(self.key_of, _KeyColumns):
            names = ", ".join(f'"{name}"' for name in self.key_of.names)
            return f"the key {names}"
        return f"the key ({brief(key)})"


def compile_dataset(dataset: Dataset) -> CompiledDataset:
    """Return the dataset ready to run.

    >>> compiled = compile_dataset(Dataset("d", key="id").with_column("x", lambda row: row["n"]))
    >>> compiled.pure, compiled.output_columns
    (True, ('x',))
    >>> compiled.identify({"id": "", "n": "1"}, 4).refused
    'the key "id" is empty'
    """
    columns = tuple(_compile_column(column) for column in dataset.columns)
    key = dataset.key
    return CompiledDataset(
        name=dataset.name,
        key_of=_KeyColumns(key) if isinstance(key, tuple) else key,  # type: ignore[arg-type] # str became a tuple
        when=dataset.when,
        columns=columns,
        pure=all(isinstance(column.work, PlainWork) for column in columns),
        site=dataset.site,
    )


def reason_of(error: BaseException) -> str:
    """Return an exception of play code as a reason: our own messages bare, others with their type.

    >>> reason_of(KeyError("x")), reason_of(NotJson("value is a set"))
    ("KeyError: 'x'", 'value is a set')
    """
    if isinstance(error, NotJson | NoSuchColumn):
        return str(error)
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class _KeyColumns:
    """The key as one column's value, or a list of several."""

    names: tuple[str, ...]

    def __call__(self, values: Mapping[str, Any]) -> Any:
        row = Row(values, {})
        return row[self.names[0]] if len(self.names) == 1 else [row[name] for name in self.names]


def _compile_column(column: ColumnDeclaration) -> CompiledColumn:
    return CompiledColumn(
        name=column.name,
        work=_work(column.source),
        when=column.when,
        on_error=column.on_error,
        persisted=not is_runtime_only(column.name),
        replace=column.replace,
        site=column.site,
    )


def _work(source: Any) -> Work:
    if isinstance(source, ToolCall):
        return ToolWork(source.tool, source.build)
    return ResolverWork(source) if is_async(source) else PlainWork(source)


def _is_empty(key: Any) -> bool:
    """A key is empty where nothing of it tells rows apart: None, blank text, or a list of such."""
    if isinstance(key, list):
        return all(_is_empty(part) for part in key)
    return key is None or (isinstance(key, str) and not key.strip())
