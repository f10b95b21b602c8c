"""A row's columns, in order: what each works out, and what becomes of the row (D1, D3, D4).

Nothing here is durable: a row that is interrupted starts again from its first column, and every
call that was made is answered from its receipt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from rowmill.plays.compiled import CompiledColumn, PlainWork, ResolverWork, ToolWork, reason_of
from rowmill.plays.context import CallFailed, Skipped
from rowmill.plays.tools import OutputMismatch
from rowmill.settings import Settings
from rowmill.streams.core.accounting import CallTally
from rowmill.streams.core.columns import Row
from rowmill.streams.ports import Clock, Note, Secrets, silent
from rowmill.streams.rows.asks import Asks
from rowmill.streams.rows.context import RowCalls, RowCtx
from rowmill.streams.rows.open_row import OpenRow
from rowmill.streams.rows.plays import PlayShelf
from rowmill.topics.contracts import Cell, ProviderResult, RowInput
from rowmill.topics.contracts.rows import RowStatus

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RowEnding:
    """How a row ended, with the cells it got so far and what its calls cost."""

    status: RowStatus
    cells: dict[str, Cell] = field(default_factory=dict)
    error: str | None = None
    failed_column: str | None = None
    calls: CallTally = field(default_factory=CallTally)


@dataclass(slots=True)
class _Progress:
    """The cells of an open row, and the values its next column sees."""

    row: Row
    outputs: dict[str, Any]
    cells: dict[str, Cell] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> _Progress:
        outputs: dict[str, Any] = {}
        return cls(Row(values, outputs), outputs)

    def keep(self, column: CompiledColumn, value: Any, cell: Cell) -> None:
        """Patch a column's value in, and its cell unless the column is runtime-only (D7)."""
        self.outputs[column.name] = value
        self.statuses[column.name] = cell.status
        if column.persisted:
            self.cells[column.name] = cell


class RowRunner:
    """Runs the columns of rows whose play this worker serves."""

    def __init__(
        self,
        asks: Asks,
        shelf: PlayShelf,
        settings: Settings,
        clock: Clock,
        secrets: Secrets,
        note: Note = silent,
    ) -> None:
        self._secrets = secrets
        self._asks = asks
        self._shelf = shelf
        self._settings = settings
        self._clock = clock
        self._note = note

    async def run(self, row: OpenRow, record: RowInput) -> RowEnding:
        """Work a row's columns out. Raises: asyncio.CancelledError where its partition was lost."""
        play = self._shelf.play(row.run)
        calls = RowCalls(self._asks, self._settings, row, self._secrets)
        progress = _Progress.of(record.values)
        try:
            if (ended := self._unqualified(play.dataset.qualifies, record)) is not None:
                return ended
            for column in play.dataset.columns:
                failure = await self._column(column, progress, calls, row)
                status = progress.statuses[column.name]
                self._note("cell", run=row.run.run, row=row.row, column=column.name, status=status)
                if failure is not None:
                    return self._failed(column, failure, progress, calls.tally())
            return RowEnding("completed", progress.cells, calls=calls.tally())
        finally:
            calls.close()

    def run_pure(self, row: OpenRow, record: RowInput) -> RowEnding:
        """Work out a row whose columns are all plain functions, without a task (D6)."""
        dataset = self._shelf.play(row.run).dataset
        progress = _Progress.of(record.values)
        if (ended := self._unqualified(dataset.qualifies, record)) is not None:
            return ended
        for column in dataset.columns:
            failure = self._plain(column, progress)
            if failure is not None:
                return self._failed(column, failure, progress, CallTally())
        return RowEnding("completed", progress.cells)

    def _unqualified(self, qualifies: Any, record: RowInput) -> RowEnding | None:
        try:
            return None if qualifies(record.values) else RowEnding("skipped")
        except Exception as error:  # noqa: BLE001 - play code may raise anything
            return RowEnding("failed", error=f"the dataset's when: {reason_of(error)}")

    def _failed(
        self, column: CompiledColumn, failure: str, progress: _Progress, calls: CallTally
    ) -> RowEnding:
        return RowEnding(
            "failed",
            progress.cells,
            error=f"{column.name}: {failure}",
            failed_column=column.name,
            calls=calls,
        )

    def _plain(self, column: CompiledColumn, progress: _Progress) -> str | None:
        """Work out a plain column. Returns: why the row fails with it, None where it goes on."""
        try:
            if not self._wanted(column, progress):
                return None
            if not isinstance(column.work, PlainWork):
                raise TypeError(f"{column.name} is no plain function")
            self._give(column, column.work.function(progress.row), progress, None)
        except Exception as error:  # noqa: BLE001 - play code may raise anything
            return self._column_failed(column, reason_of(error), progress, None)
        return None

    async def _column(
        self, column: CompiledColumn, progress: _Progress, calls: RowCalls, row: OpenRow
    ) -> str | None:
        """Work out any column. Returns: why the row fails with it, None where it goes on."""
        work = column.work
        if isinstance(work, PlainWork):
            return self._plain(column, progress)
        calls.enter(column.name)
        try:
            if not self._wanted(column, progress):
                return None
            if isinstance(work, ToolWork):
                value = await calls.execute(work.tool, work.build(progress.row))
            else:
                value = await self._resolve(work, progress, calls, row)
            self._give(column, value, progress, calls.last)
        except asyncio.CancelledError:
            raise
        except (CallFailed, OutputMismatch) as error:
            return self._column_failed(column, str(error), progress, calls.last)
        except Exception as error:
            log.info(
                "column_failed", column=column.name, run=row.run.run, row=row.row, exc_info=True
            )
            return self._column_failed(column, reason_of(error), progress, calls.last)
        return None

    async def _resolve(
        self, work: ResolverWork, progress: _Progress, calls: RowCalls, row: OpenRow
    ) -> Any:
        return await work.function(progress.row, RowCtx(row.row, row.index, calls))

    def _wanted(self, column: CompiledColumn, progress: _Progress) -> bool:
        if column.when is None or column.when(progress.row):
            return True
        progress.keep(column, None, Cell.model_construct(status="skipped"))
        return False

    def _give(
        self,
        column: CompiledColumn,
        value: Any,
        progress: _Progress,
        source: ProviderResult | None,
    ) -> None:
        """Patch a value in. Raises: NotJson where it can't be kept."""
        if isinstance(value, Skipped):
            kept = column.to_json(value.value)
            cell = Cell.model_construct(status="skipped", value=kept, error=value.reason)
            progress.keep(column, value.value, cell)
            return
        cell = Cell.model_construct(
            status="completed",
            value=column.to_json(value),
            provider=source.provider if source else None,
            completed_at_ms=self._clock.wall_ms(),
            reused=source.reused if source else False,
        )
        progress.keep(column, value, cell)

    def _column_failed(
        self,
        column: CompiledColumn,
        reason: str,
        progress: _Progress,
        source: ProviderResult | None,
    ) -> str | None:
        """Leave a failed cell and None (D3). Returns: why the row fails, None where it goes on."""
        provider = source.provider if source else None
        cell = Cell.model_construct(status="failed", error=reason, provider=provider)
        progress.keep(column, None, cell)
        return None if column.on_error == "continue" else reason
