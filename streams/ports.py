"""What the roles need from outside, as Protocols. Adapters fulfil them; `app` modules choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core.outcomes import Outcome
from rowmill.topics.contracts import RowCompleted


@dataclass(frozen=True, slots=True)
class Send:
    """One send of a call: what dispatch hands to the provider port.

    `idempotency_key` as in Q7; `timeout_s` bounds the whole call, connect to last byte;
    `bytes_max` bounds the answer, cut off while streaming.
    """

    provider: ProviderSpec
    tool: ToolSpec
    input: Mapping[str, Any]
    idempotency_key: str
    timeout_s: float
    bytes_max: int


class Provider(Protocol):
    """The one road to a provider."""

    async def call(self, send: Send) -> Outcome:
        """Send once, and say what came of it. Never raises for what the provider or network does.

        Raises: asyncio.CancelledError when the caller gives up; SecretMissing where the secret that
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


class Clock(Protocol):
    """Time, passed in everywhere."""

    def monotonic_ms(self) -> int:
        """Milliseconds of this process's monotonic clock."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; for people and records, never for safety."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition of `rows.completed` for one sheet.

    `start`: offset the sheet must be at (its `next`); `end`: what it is at afterwards. `offsets[i]`
    belongs to `rows[i]`, so that records below `next` can be dropped.
    """

    reader: str
    topic: str
    partition: int
    start: int
    end: int
    rows: Sequence[RowCompleted] = field(default_factory=tuple)
    offsets: Sequence[int] = field(default_factory=tuple)


class Sheet(Protocol):
    """A table that the user watches, written by the sink only (point 7 of the architecture)."""

    def prepare(
        self, dataset: str, input_columns: Sequence[str], output_columns: Sequence[str]
    ) -> None:
        """Create the dataset's table, or add the columns it lacks. Idempotent."""
        ...

    def next_offset(self, reader: str, topic: str, partition: int) -> int | None:
        """Return the offset the sheet wants next, None where it never saw the partition."""
        ...

    def flush(self, chunk: Chunk) -> int:
        """Write a chunk in one transaction whose first statement advances `next`.

        Returns: the sheet's `next` afterwards. Where it was not at `chunk.start` nothing is written
        twice: records below `next` are dropped. Raises: SheetUnwritable, with the cause.
        """
        ...

    def close(self) -> None:
        """Close connections; on SQLite give up the exclusive writer lock."""
        ...
