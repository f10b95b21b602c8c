"""What a run left behind: topics, offsets, sheet, report; each part may not have been looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record as it is read back at the end. `value`: its JSON, None for a deletion."""

    partition: int
    offset: int
    key: str | None
    value: Any
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class SheetRow:
    """A row of the sheet. `cells`: the value of each column of the play."""

    row: str
    index: int
    status: str
    error: str | None
    cells: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came of building everything again from the topics alone (INV23).

    `calls`: requests that reached the provider meanwhile.
    """

    calls: int
    receipts_equal: bool
    sheet_equal: bool


@dataclass
class Finals:
    """What a run left behind. None: it was not looked at, and what needs it is skipped by name.

    `input_rows`: row id and values as they were fed, duplicates included. `topics`: by plain name
    (without prefix). `ends`: high-water marks, topic -> partition -> offset. `committed`: of the
    role that reads the topic. `twin`: the sheet of the same seed without faults. `report`: what
    `rowmill run --json` printed. `answer_of`: (tool, input) -> what the provider answers, a pure
    function. `columns`: in order. `cell_of`: (input row's values, column) -> its cell.
    `canaries`: places where a canary secret was found. `memory_mb`: peak RSS by process.
    """

    input_rows: list[tuple[str, dict[str, Any]]] | None = None
    topics: dict[str, list[TopicRecord]] | None = None
    ends: dict[str, dict[int, int]] | None = None
    committed: dict[str, dict[int, int]] | None = None
    sheet: list[SheetRow] | None = None
    twin: list[SheetRow] | None = None
    report: dict[str, Any] | None = None
    answer_of: Callable[[str, dict[str, Any]], Any] | None = None
    columns: list[str] | None = None
    cell_of: Callable[[dict[str, Any], str], Any] | None = None
    canaries: list[str] | None = None
    rebuilt: Rebuilt | None = None
    memory_mb: dict[str, float] | None = None
