"""What the roles need from outside, as Protocols. Adapters fulfil them; `app` modules choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rowmill.errors import InfrastructureError, RowmillError
from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core.chunks import Chunk
from rowmill.streams.core.outcomes import Outcome
from rowmill.streams.core.row_writes import RowWrite


@dataclass(frozen=True, slots=True)
class Send:
    """One send of a call: what dispatch hands to the provider port.

    `idempotency_key` as in Q7; `timeout_s` bounds the whole call, connect to last byte;
    `bytes_max` bounds the answer, cut off while streaming. `may_leave` is asked once more when the
    connection is there: making one takes turns of the loop, in which a process may stand still.
    """

    provider: ProviderSpec
    tool: ToolSpec
    input: Mapping[str, Any]
    idempotency_key: str
    timeout_s: float
    bytes_max: int
    may_leave: Callable[[], bool] = lambda: True


class NotSent(Exception):
    """`Send.may_leave` said no: no byte of the request left."""


class Provider(Protocol):
    """The one road to a provider."""

    async def call(self, send: Send) -> Outcome:
        """Send once, and say what came of it. Never raises for what the provider or network does.

        Raises: asyncio.CancelledError when the caller gives up; NotSent; SecretMissing where the secret that
        the provider's auth names is not set.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Secrets(Protocol):
    """Where secret values come from. Values never leave the worker (R10)."""

    def get(self, name: str) -> str:
        """Return the value. Raises: SecretMissing, naming how to set it."""
        ...

    def found_in(self, data: bytes) -> str | None:
        """Return the name of a secret whose value `data` carries (plain, base64, URL-encoded)."""
        ...


class Note(Protocol):
    """Where a process writes what it did: events and fields as in docs/history.md."""

    def __call__(self, event: str, **fields: object) -> None:
        """Write one event."""
        ...


def silent(event: str, **fields: object) -> None:
    """Fulfil `Note` where no history is kept."""


class Clock(Protocol):
    """Time, passed in everywhere."""

    def monotonic_ms(self) -> int:
        """Milliseconds of this process's monotonic clock."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; for people and records, never for safety."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """Whose offsets a sheet keeps: a reader of a topic, apart for each cluster.

    `reader`: the sink's group and the cluster's id, so that a cluster that was made anew, or
    another one, is not taken for the one the sheet knows.
    """

    reader: str
    topic: str


@dataclass(frozen=True, slots=True)
class Flushed:
    """What a flush came to. `next_offsets`: the sheet's `next` of each partition of the chunk;
    `written`: rows put in, replaced or given cells; `ignored`: rows of a lower writer, patches of
    an ended row; `had`: rows that the sheet already had from an earlier flush of these offsets.
    """

    next_offsets: Mapping[int, int]
    written: int = 0
    ignored: int = 0
    had: int = 0


class Sheet(Protocol):
    """A table that the user watches, written by the sink only (point 7 of the architecture).

    Not thread-safe: the sink calls it from one thread. Each method may raise SheetUnwritable.
    """

    def prepare(
        self, dataset: str, input_columns: Sequence[str], output_columns: Sequence[str]
    ) -> None:
        """Create the dataset's table, or add the columns it lacks. Idempotent."""
        ...

    def next_offsets(self, source: Source) -> Mapping[int, int]:
        """Return the offset the sheet wants next, of every partition it ever saw."""
        ...

    def flush(self, source: Source, chunk: Chunk[RowWrite]) -> Flushed:
        """Write a chunk in one transaction whose first statements advance `next`.

        Where `next` is not at a span's start, the transaction is rolled back and tried again
        without the records below `next`: nothing is written twice.

        Raises: SheetUnwritable, with the cause: try again later. SheetBehind where `next` is below
        a span's start: records in between are missing, read from `next` again. RowsRefused where
        the store takes the chunk but for some rows: nothing was written; leave them out.
        """
        ...

    def close(self) -> None:
        """Close connections; give up the exclusive writer's lock."""
        ...


class SheetUnusable(InfrastructureError):
    """The sheet's URL, file or format is not as needed: somebody has to act."""


class SheetUnwritable(InfrastructureError):
    """The sheet can't be written now: locked, full, gone. Trying again may help."""


class SheetBehind(InfrastructureError):
    """The sheet lacks records that this sink passed on before: it was replaced by an older one."""


class RowsRefused(RowmillError):
    """Rows that the store can't hold. `reasons`: by (partition, offset)."""

    def __init__(self, reasons: Mapping[tuple[int, int], str]) -> None:
        self.reasons = dict(reasons)
        first = next(iter(self.reasons.items()))
        super().__init__(f"{len(self.reasons)} rows refused, first at {first[0]}: {first[1]}")
