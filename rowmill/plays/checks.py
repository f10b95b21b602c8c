"""What can be known of a play before anything runs: names, limits, tools, secrets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from rowmill.errors import InputError, PlayError
from rowmill.plays.datasets import ColumnDeclaration, Dataset
from rowmill.plays.providers import Provider
from rowmill.plays.sites import closest
from rowmill.plays.specs import Rate
from rowmill.plays.tools import Tool, ToolCall


class KeyColumnMissing(InputError):
    """The dataset's key is no column of the input. Nothing was called."""

    def __init__(self, path: str, key: str, found: list[str]) -> None:
        """Args: the input as the user named it, the key column, the input's columns."""
        names = ", ".join(found)
        super().__init__(
            f'{path}, line 1: no column "{key}"; set key= to one of {names}.'
            f"{closest(key, found)} Nothing was called."
        )


def check_input_columns(dataset: Dataset, columns: Sequence[str], source: str) -> None:
    """Check that the input has the columns which the dataset names.

    Args: `columns`: the input's fields, in order; `source`: the input as the user named it.
    Raises: KeyColumnMissing; PlayError for a `col()` that names neither an input column nor one
    that is worked out before.
    """
    found = list(columns)
    if isinstance(dataset.key, tuple):
        for name in dataset.key:
            if name not in found:
                raise KeyColumnMissing(source, name, found)
    for place, column in enumerate(dataset.columns):
        known = [*found, *(earlier.name for earlier in dataset.columns[:place])]
        _check_cols(column, known, dataset.columns[place:], source)


def check_replaced(dataset: Dataset, columns: Sequence[str]) -> None:
    """Raise PlayError where `replace=True` stands on a column that replaces nothing."""
    for column in dataset.columns:
        if column.replace and column.name not in columns:
            column.site.refuse(
                f'column "{column.name}": replace=True, but the input has no column of that name.'
                f"{closest(column.name, list(columns))}"
            )


def _check_cols(
    column: ColumnDeclaration,
    known: list[str],
    later: Sequence[ColumnDeclaration],
    source: str,
) -> None:
    if not isinstance(column.source, ToolCall):
        return
    for reference in column.source.cols:
        if reference.name in known:
            continue
        named = f'column "{column.name}": {reference!r}'
        if any(reference.name == other.name for other in later):
            reference.site.refuse(f"{named} is worked out later; put that column before this one.")
        reference.site.refuse(
            f"{named}: neither {source} nor a column before it has that name; "
            f"there are {', '.join(known)}.{closest(reference.name, known)}"
        )


def check_tools(tools: Iterable[Tool], providers: Iterable[Provider]) -> None:
    """Raise PlayError where one id stands for two different tools, or two different providers."""
    seen_tools: dict[str, Tool] = {}
    for tool in tools:
        first = seen_tools.setdefault(tool.id, tool)
        if first.spec != tool.spec:
            tool.site.refuse(
                f'Tool "{tool.id}" is defined twice, differently; the first is at {first.site}.'
            )
    seen: dict[str, Provider] = {}
    for provider in providers:
        earlier = seen.setdefault(provider.id, provider)
        if earlier.spec != provider.spec:
            provider.site.refuse(
                f'Provider "{provider.id}" is defined twice, differently; '
                f"the first is at {earlier.site}."
            )


def check_limits(provider: Provider) -> None:
    """Raise PlayError where two limits of a provider can't both be meant.

    A window that is at least as long must allow at least as many calls: 1000/s beside 100/min says
    a thing that can never happen, and one of the two is mistyped.
    """
    limits = sorted(provider.spec.limits, key=lambda limit: (limit.per_s, -limit.calls))
    for shorter, longer in itertools.pairwise(limits):
        if longer.calls < shorter.calls:
            provider.site.refuse(
                f'Provider "{provider.id}": limits contradict: {_written(shorter)} can never be '
                f"reached under {_written(longer)}; drop or correct one."
            )


def check_secrets(providers: Iterable[Provider], is_set: Callable[[str], bool]) -> None:
    """Raise PlayError naming the first secret that is not set, and how to set it."""
    for provider in providers:
        auth = provider.spec.auth
        if auth is not None and not is_set(auth.secret):
            raise PlayError(
                f'{provider.site}: Provider "{provider.id}" needs the secret {auth.secret}: set '
                f"ROWMILL_SECRET_{auth.secret}, or ROWMILL_SECRET_{auth.secret}_FILE to a file "
                "that holds it. Nothing was called."
            )


def _written(limit: Rate) -> str:
    units = {1: "s", 60: "min", 3_600: "h", 86_400: "day"}
    return f"{limit.calls}/{units.get(int(limit.per_s), f'{limit.per_s:g}s')}"
