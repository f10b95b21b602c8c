"""What the measuring process looks at: the sheet, as any reader of it would."""

from __future__ import annotations

import json
from typing import Any

from bench.provider import Check
from rowmill.settings import Settings
from rowmill.streams.adapters.sheet.reading import SheetReader, SheetRow
from rowmill.streams.core.row_writes import OPEN
from rowmill.streams.ports import SheetUnusable


class SheetWatch:
    """Counts and checks the rows of one run. The sheet may not exist yet: it has no rows then."""

    def __init__(self, settings: Settings, dataset: str, run: str) -> None:
        self._url = settings.sheet_url
        self._dataset = dataset
        self._run = run
        self._reader: SheetReader | None = None

    def rows(self) -> int:
        """Return how many rows of the run have their final form in the sheet."""
        try:
            if self._reader is None:
                self._reader = SheetReader(self._url)
            counts = self._reader.counts(self._dataset, self._run)
        except SheetUnusable:  # not made yet
            return 0
        return sum(rows for status, rows in counts.items() if status != OPEN)

    def lost(self, symbols: list[str], check: Check) -> int:
        """Return how many of these rows are missing, or do not hold the right two answers."""
        if self._reader is None:
            return len(symbols)
        right = {
            row.values["symbol"]
            for row in self._reader.rows(self._dataset, self._run)
            if row.status == "completed" and _is_right(row, check)
        }
        return len(set(symbols) - right)

    def close(self) -> None:
        """Let go of the file."""
        if self._reader is not None:
            self._reader.close()


def _is_right(row: SheetRow, check: Check) -> bool:
    symbol = row.values["symbol"]
    return symbol is not None and check(
        symbol, _json(row.outputs["company"]), _json(row.outputs["domain"])
    )


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
