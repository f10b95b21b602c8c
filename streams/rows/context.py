"""The `ctx` of a resolver, and the calls of one open row behind it (Q1)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from rowmill.plays.context import CallFailed, Force, Log, Skipped
from rowmill.plays.providers import seconds
from rowmill.plays.specs import SECONDS_MAX, TIMEOUT_S_MAX
from rowmill.plays.tools import OutputT, Tool
from rowmill.plays.values import to_json
from rowmill.settings import Settings
from rowmill.streams.core.accounting import CallTally
from rowmill.streams.core.commands import force_token
from rowmill.streams.core.identity import receipt_key
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.ports import Secrets
from rowmill.streams.rows.asks import Asks
from rowmill.streams.rows.open_row import OpenRow
from rowmill.topics.contracts import ProviderResult, ToolRequest


class RowCalls:
    """The calls of one row: asked, awaited, tallied.

    A call's name within its row is its column and its receipt, so a replayed row names it the same
    whatever order its questions come in.
    """

    def __init__(self, asks: Asks, settings: Settings, row: OpenRow, secrets: Secrets) -> None:
        self._asks = asks
        self._organisation = settings.organisation
        self._bytes_max = settings.row_bytes_max
        self._secrets = secrets
        self._row = row
        self._column = ""
        self._wait_s = settings.receipt_wait_s
        self._slots = asyncio.Semaphore(settings.row_open_calls_max)
        self._open: set[str] = set()
        self._results: dict[str, ProviderResult] = {}
        self.last: ProviderResult | None = None
        """The newest result of the present column."""

    def enter(self, column: str) -> None:
        """Go on to a column: its calls are named after it."""
        self._column = column
        self.last = None

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
        """Ask, or get a receipt's answer: `Tools.execute` of the play's surface."""
        _check_times(tool, timeout_s, wait_s)
        self._check_declared(tool)
        request = self._request(
            tool,
            self._sendable(tool, to_json(input, f"{tool.id}: input")),
            force=force,
            timeout_s=timeout_s,
            wait_s=min(self._wait_s if wait_s is None else wait_s, SECONDS_MAX),
            stale_after_s=None if stale_after is None else min(seconds(stale_after), SECONDS_MAX),
        )
        async with self._slots:
            self._open.add(request.call)
            result = await self._asks.ask(request)
            self._open.discard(request.call)
        self._results[result.call] = self.last = result
        if result.status == "failed":
            raise _failure(result)
        return tool.read(result.output)

    def tally(self) -> CallTally:
        """Return what the row's calls cost, each counted once."""
        calls: dict[str, float] = {}
        reused: dict[str, float] = {}
        spent: dict[str, float] = {}
        for result in self._results.values():
            provider = result.provider
            calls[provider] = calls.get(provider, 0) + result.sends
            if result.reused:
                reused[provider] = reused.get(provider, 0) + 1
            if result.cost:
                spent[provider] = spent.get(provider, 0) + result.cost
        return CallTally(calls, reused, spent)

    def close(self) -> None:
        """The row ended or was cancelled: nobody waits for its open questions any more."""
        if self._open:
            self._asks.withdraw(self._row.run.run, self._row.row, self._open)

    def _check_declared(self, tool: Tool[Any]) -> None:
        """A tool that the run does not know has no lane: its question would wait without end.

        Raises: CallFailed.
        """
        if not any(known.id == tool.id for known in self._row.run.tools):
            reason = (
                "the play has no name for this tool: assign it to one, or one of a module that the"
                " play imports; nothing was called"
            )
            raise CallFailed(tool.id, FailureKind.PERMANENT, reason)

    def _sendable(self, tool: Tool[Any], question: dict[str, Any]) -> dict[str, Any]:
        """Return a question that may enter a topic. Raises: CallFailed (R9, R10)."""
        plain = msgspec.json.encode(question)
        where = f"{self._row.where}: the input of {tool.id}"
        if (name := self._secrets.found_in(plain)) is not None:
            reason = f"{where} carries the secret {name}; nothing was called"
            raise CallFailed(tool.id, FailureKind.SECRET, reason)
        if len(plain) > self._bytes_max:
            reason = (
                f"{where} has {len(plain):,} bytes, the limit is {self._bytes_max:,} "
                "(ROWMILL_ROW_BYTES_MAX); nothing was called"
            )
            raise CallFailed(tool.id, FailureKind.PERMANENT, reason)
        return question

    def _request(self, tool: Tool[Any], question: dict[str, Any], **wishes: Any) -> ToolRequest:
        row = self._row
        command = row.command
        wishes["force"] = force = wishes["force"] or command.force
        spec, provider = tool.spec, tool.provider.spec
        key = receipt_key(
            self._organisation, provider.scope, spec.id, spec.version, provider.host, question
        )
        return ToolRequest.model_construct(
            run=row.run.run,
            life=row.life,
            dataset=row.run.dataset,
            row=row.row,
            call=f"{self._column}/{key}",
            receipt=key,
            tool=spec.id,
            input=question,
            reply_partition=row.partition,
            command=command.number,
            force_token=None if force is None else force_token(row.run.run, command.number),
            **wishes,
        )


class RowCtx:
    """Fulfils `RowContext`."""

    def __init__(self, row_id: str, index: int, calls: RowCalls) -> None:
        self.row_id = row_id
        self.index = index
        self.tools = calls

    @property
    def log(self) -> Log:
        """The row's log."""
        return structlog.get_logger("play").bind(row=self.row_id)  # type: ignore[no-any-return]

    def skip(self, reason: str, value: Any = None) -> Skipped:
        """Return this from a resolver to skip its cell (D4)."""
        return Skipped(reason, value)


def _check_times(tool: Tool[Any], timeout_s: float | None, wait_s: float | None) -> None:
    """Raises: ValueError."""
    if timeout_s is not None and not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise ValueError(
            f"{tool.id}: timeout_s={timeout_s:g}; it is above 0 and at most {TIMEOUT_S_MAX}"
        )
    if wait_s is not None and not 0 < wait_s < math.inf:
        raise ValueError(f"{tool.id}: wait_s={wait_s:g}; it is above 0")


def _failure(result: ProviderResult) -> CallFailed:
    error = result.error
    if error is None:
        return CallFailed(result.tool, FailureKind.TRANSIENT, "no reason given")
    return CallFailed(result.tool, FailureKind(error.kind), error.message, error.status_code)
