"""Rowmill: enrich rows through paid, rate-limited providers. The names a play's author needs.

>>> from rowmill import Dataset, Provider, Tool, col, rate
>>> registry = Provider("registry", base_url="https://registry.test", limits=[rate("100/s")])
>>> profile = Tool("registry.profile", registry, post="/company")
>>> companies = Dataset("companies", key="Symbol").with_column(
...     "profile", profile(symbol=col("Symbol"))
... )
>>> [column.name for column in companies.columns]
['profile']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowmill.plays.batches import batch
    from rowmill.plays.context import CallFailed, RowContext, Skipped
    from rowmill.plays.datasets import Dataset
    from rowmill.plays.params import Params
    from rowmill.plays.providers import Provider, bearer, header, rate
    from rowmill.plays.specs import RetryPolicy
    from rowmill.plays.tools import Tool, col
    from rowmill.streams.core.columns import Row

__all__ = [
    "CallFailed",
    "Dataset",
    "Params",
    "Provider",
    "RetryPolicy",
    "Row",
    "RowContext",
    "Skipped",
    "Tool",
    "batch",
    "bearer",
    "col",
    "header",
    "rate",
]

# Imported when first used: pydantic costs 0.2 s, which `rowmill --help` must not wait for.
_HOMES = {
    "CallFailed": "rowmill.plays.context",
    "Dataset": "rowmill.plays.datasets",
    "Params": "rowmill.plays.params",
    "Provider": "rowmill.plays.providers",
    "RetryPolicy": "rowmill.plays.specs",
    "Row": "rowmill.streams.core.columns",
    "RowContext": "rowmill.plays.context",
    "Skipped": "rowmill.plays.context",
    "Tool": "rowmill.plays.tools",
    "batch": "rowmill.plays.batches",
    "bearer": "rowmill.plays.providers",
    "col": "rowmill.plays.tools",
    "header": "rowmill.plays.providers",
    "rate": "rowmill.plays.providers",
}


def __getattr__(name: str) -> Any:
    """Return a public name from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rowmill' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
