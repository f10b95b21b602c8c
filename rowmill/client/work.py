"""What a run is made of, in plain values: what goes into its record in `runs`."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowmill.client.feed import SourceRow
from rowmill.errors import UsageError
from rowmill.plays.compiled import CompiledDataset
from rowmill.plays.loading import LoadedPlay
from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core.identity import cleaned, refused_row_id
from rowmill.topics.contracts import PlayReference, RunOptions

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Work:
    """A play made ready for one input. Column names are those of the input and of the play."""

    play: PlayReference
    dataset: str
    input_columns: tuple[str, ...]
    output_columns: tuple[str, ...]
    providers: tuple[ProviderSpec, ...]
    tools: tuple[ToolSpec, ...]
    options: RunOptions

    @classmethod
    def of(cls, play: LoadedPlay, input_columns: Sequence[str], options: RunOptions) -> Work:
        """Return the work of a play over an input with these columns."""
        reference = play.reference
        return cls(
            play=PlayReference(
                name=reference.name,
                path=reference.path,
                module=reference.module,
                digest=reference.digest,
                params=dict(reference.params),
            ),
            dataset=play.dataset.name,
            input_columns=tuple(input_columns),
            output_columns=play.dataset.output_columns,
            providers=tuple(play.providers),
            tools=tuple(play.tools),
            options=options,
        )


@dataclass(frozen=True, slots=True)
class PlainRow:
    """An input row before anybody asked who it is. `refused`: why its reader says it can't run."""

    values: Mapping[str, Any]
    refused: str | None = None


def identified(dataset: CompiledDataset, rows: Iterable[PlainRow]) -> Iterator[SourceRow]:
    """Give every row its identity (I1), in order; one that has none is refused, alone."""
    for index, row in enumerate(rows):
        if row.refused is not None:
            yield SourceRow(refused_row_id(dataset.name, index), row.values, row.refused)
            continue
        found = dataset.identify(row.values, index)
        yield SourceRow(found.row, row.values, found.refused)


def plain_rows(rows: Iterable[Mapping[str, Any]]) -> Callable[[], Iterator[PlainRow]]:
    """Return rows from code as an input that can be read more than once; an iterator is kept."""
    kept = rows if isinstance(rows, Sequence) else list(rows)
    return lambda: (PlainRow(cleaned(values)) for values in kept)


def new_run_id() -> str:
    """Return a random run id: 8 hexadecimal characters, short enough to type."""
    return secrets.token_hex(4)


def checked_run_id(run: str) -> str:
    """Return `run` where it can be a run id. Raises: UsageError.

    It names a lock file and stands in table keys before a `/`: letters, digits, `_ . -` only.
    """
    if not _RUN_ID.fullmatch(run):
        raise UsageError(
            f"{run[:80]!r} can't be a run id: use 1 to 64 letters, digits, '_', '.' and '-', "
            "beginning with a letter or digit. Nothing was called."
        )
    return run
