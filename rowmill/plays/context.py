"""What a resolver holds in its hand: the row's context, and what can come back from a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rowmill.errors import RowmillError
from rowmill.plays.tools import OutputT, Tool
from rowmill.streams.core.outcomes import FailureKind

Force = Literal["all", "failed"]
"""Ask again although a receipt has an answer: any answer, or a failure that would be reported."""


class CallFailed(RowmillError):
    """A tool call failed. A resolver may catch it; else it fails the cell (and the row)."""

    def __init__(
        self, tool: str, kind: FailureKind, message: str, status_code: int | None = None
    ) -> None:
        """Args: tool id; why (R8); the provider's words; its HTTP status where there was one."""
        self.tool = tool
        self.kind = kind
        self.message = message
        self.status_code = status_code
        status = f" {status_code}" if status_code is not None else ""
        super().__init__(f"{tool}:{status} {kind}: {message}")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A resolver's answer that its cell is skipped (D4). `value` is patched in all the same."""

    reason: str
    value: Any = None


class Tools(Protocol):
    """The one road to a provider (Q1)."""

    async def execute(
        self,
        tool: Tool[OutputT],
        input: Mapping[str, Any],
        *,
        force: Force | None = None,
        timeout_s: float | None = None,
        wait_s: float | None = None,
        stale_after: str | float | None = None,
    ) -> OutputT:
        """Ask, or get the answer of a receipt.

        Args: `input`: JSON object, the question; ask the same for the same row at every replay.
        `force`: ask again. `timeout_s`: of one send, above 0, up to 900. `wait_s`: for somebody
        else's call in flight, `ROWMILL_RECEIPT_WAIT_S` where left out; once over, this one fails
        as "still running elsewhere". `stale_after`: seconds or `30d`; an older receipt is asked again.
        Returns: the output, a model where the tool has `output=`.
        Raises: CallFailed; NotJson where `input` can't be JSON.
        """
        ...


class Log(Protocol):
    """A structured log; run, row and column are bound already. Never log a secret."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log an event with its fields."""
        ...

    def warning(self, event: str, **fields: Any) -> Any:
        """Log something that should be looked at."""
        ...


class RowContext(Protocol):
    """The `ctx` of `async def resolver(row, ctx)`."""

    @property
    def row_id(self) -> str:
        """The row's identity (I1), 32 hexadecimal characters."""
        ...

    @property
    def index(self) -> int:
        """The row's place in the input, from 0."""
        ...

    @property
    def tools(self) -> Tools:
        """The tools."""
        ...

    @property
    def log(self) -> Log:
        """The row's log."""
        ...

    def skip(self, reason: str, value: Any = None) -> Skipped:
        """Return this from a resolver to skip its cell: `return ctx.skip("no profile")`."""
        ...
