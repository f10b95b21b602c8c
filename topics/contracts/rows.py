"""`rows.input` and `rows.completed`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from rowmill.topics.contracts.base import (
    INT64_MAX,
    KEY_CHARS_MAX,
    Contract,
    Count,
    Json,
    Number,
    RowKey,
)


class RowInput(Contract):
    """One input row. Any Kafka client may write it; `run`, `dataset` and `values` are enough.

    `row` None: the rows role computes the row id, stamps it and produces the record again to the
    partition of that id. `index`: place in the input, from 0. `refused`: why the row can't run (too
    many cells, too large, no key), found at load; the rows role ends it as failed, with no call.
    """

    TYPE: ClassVar[str] = "rowmill.row.input"

    run: RowKey
    life: int = Field(1, ge=1, le=INT64_MAX)
    dataset: str = Field(max_length=KEY_CHARS_MAX)
    row: RowKey | None = None
    index: Count | None = None
    values: dict[str, Json]
    refused: str | None = None


CellStatus = Literal["completed", "failed", "skipped"]
RowStatus = Literal["completed", "failed", "skipped"]


class Cell(BaseModel):
    """One output cell with what is known of it (S3)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: CellStatus
    value: Json = None
    provider: str | None = None
    error: str | None = None
    completed_at_ms: Number | None = None
    reused: bool = False


class RowCompleted(Contract):
    """A finished row, or (`kind="patch"`) cells of a row that is still open.

    (`run_number`, `life`, `epoch`) orders writers: a row in the sheet is replaced only by a higher
    triple; a patch applies to the same run and life while the row is open.
    """

    TYPE: ClassVar[str] = "rowmill.row.completed"

    kind: Literal["row", "patch"] = "row"
    run: str
    run_number: Number
    life: Count
    epoch: Count
    dataset: str
    row: str
    index: Count
    status: RowStatus | None
    error: str | None = None
    failed_column: str | None = None
    values: dict[str, Json] = {}
    cells: dict[str, Cell] = {}


class RowEntry(Contract):
    """An entry of the table `rows`: what became of one row of a run, and the run's counts after it.

    Key: `run/row`, a duplicate's `run/row/index`. `counts`: the run's counts in this partition with
    this entry included, as `core.accounting.Counts` writes them. `outputs` is kept for S1 and I4.
    `command`: number of the run's command whose ending this is; a later one may replace a failed one.
    """

    TYPE: ClassVar[str] = "rowmill.rows.entry"

    epoch: Count
    run: str
    life: Count
    row: str
    index: Count
    status: Literal["completed", "failed", "skipped", "duplicate"]
    duplicate_of: Count | None = None
    command: Count = 0
    outputs: dict[str, Json] | None = None
    counts: dict[str, Json]
