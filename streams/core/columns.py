"""A row as play code sees it, and which of its columns are kept (D1, D7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

METADATA = "_metadata"
"""The one field that is kept although its name begins with `_` (D7)."""


class NoSuchColumn(KeyError):
    """A resolver asked its row for a column that is neither in the input nor worked out before."""

    def __init__(self, name: object, found: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.found = found

    def __str__(self) -> str:
        names = ", ".join(f'"{column}"' for column in self.found)
        return f'the row has no column "{self.name}"; it has {names or "none"}'


class Row(Mapping[str, Any]):
    """A read-only row: the outputs worked out so far, and under them the input values.

    An output named like an input column hides it from the columns after it (D7). Input values are
    text from a CSV, else JSON values; outputs are as their column gave them, typed ones as models.

    >>> row = Row({"Symbol": "MMM", "name": "old"}, {"name": "3M"})
    >>> row["Symbol"], row["name"], list(row)
    ('MMM', '3M', ['Symbol', 'name'])
    >>> row["Simbol"]
    Traceback (most recent call last):
        ...
    rowmill.streams.core.columns.NoSuchColumn: the row has no column "Simbol"; it has "Symbol", "name"
    """

    __slots__ = ("_inputs", "_outputs")

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Show both mappings, which are not copied: what is added to them later is seen."""
        self._inputs = inputs
        self._outputs = outputs

    def __getitem__(self, name: str) -> Any:
        if name in self._outputs:
            return self._outputs[name]
        try:
            return self._inputs[name]
        except KeyError:
            raise NoSuchColumn(name, list(self)) from None

    def __iter__(self) -> Iterator[str]:
        yield from self._inputs
        yield from (name for name in self._outputs if name not in self._inputs)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._outputs or name in self._inputs

    def __repr__(self) -> str:
        return f"Row({dict(self)!r})"


def is_runtime_only(column: str) -> bool:
    """Return whether an output column lives only while its row is open (D7).

    >>> [is_runtime_only(name) for name in ("domain", "_draft", "_metadata")]
    [False, True, False]
    """
    return column.startswith("_") and column != METADATA


def is_blank(values: Mapping[str, Any]) -> bool:
    """Return whether an input row holds nothing but empty cells; such a row is skipped.

    >>> is_blank({"a": "", "b": None}), is_blank({"a": " "}), is_blank({"a": "", "b": "0"})
    (True, True, False)
    """
    return all(
        value is None or (isinstance(value, str) and not value.strip()) for value in values.values()
    )
