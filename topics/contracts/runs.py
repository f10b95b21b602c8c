"""`runs`, `lanes`, `runs.events` and the dead letter."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.topics.contracts.base import INT64_MAX, Contract, Count, Json, Money, Number, RowKey

RunState = Literal["claiming", "open", "paused", "stopped", "finished"]


class PlayReference(BaseModel):
    """How a worker finds the play: a file below its play folders, or a module; never its code."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    path: str | None = None
    module: str | None = None
    digest: str
    params: dict[str, Json] = {}


class RunOptions(BaseModel):
    """What the user chose for a run. `force`, `command`: what its calls ask again, and the number of
    the command that does (`core.commands`). `max_calls` purchases, and `budget` of money for them, are
    what all its lives may spend; None without end."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    concurrency: int = Field(50, ge=1, le=INT64_MAX)
    on_row_error: Literal["fail", "continue"] = "continue"
    limit: Count | None = None
    input: str | None = None
    sheet: str = ""
    force: Literal["all", "failed"] | None = None
    command: Count = 0
    max_calls: Count | None = None
    budget: Money | None = None


class RunRecord(Contract):
    """A run as it stands; the newest record of a run id holds (key: run id).

    `number`: offset of the run's first claim in `runs`, so numbers rise with time and none is given
    twice. `life`: one main of the run; `claim`: random id of that main. The first record of a life
    in the log wins. `claim_offset` of that record. A main writes the record again every 3 s
    (`renewals` counts); one that did not for 20 s on the claimant's clock may be followed.
    `sealed_total`: rows fed, once the whole input was. `input_digests`: one per 1,000 input rows.
    """

    TYPE: ClassVar[str] = "rowmill.run"

    run: RowKey
    number: Number = -1
    life: int = Field(ge=1, le=INT64_MAX)
    claim: str
    instance: str
    pid: Count
    renewals: Count = 0
    state: RunState
    reason: str | None = None
    started_at_ms: Count
    updated_at_ms: Count
    dataset: str
    input_columns: list[str] = []
    output_columns: list[str] = []
    play: PlayReference
    options: RunOptions
    providers: list[ProviderSpec] = []
    tools: list[ToolSpec] = []
    sealed_total: Count | None = None
    input_digests: list[str] = []


class LaneRecord(Contract):
    """Where the receipts of one tool live (key: tool id).

    The first record of a (tool, version) in the log holds; only a higher version replaces it.
    `partitions`: of `tool.requests`; one for a provider with limits, else all.
    """

    TYPE: ClassVar[str] = "rowmill.lane"

    tool: str
    lane: str
    version: int = Field(1, ge=1, le=INT64_MAX)
    partitions: list[Count] = Field(min_length=1)


class DatasetEvent(Contract):
    """A dataset's start, progress or end (E1). Counts as in `core.accounting.Counts`."""

    TYPE: ClassVar[str] = "rowmill.dataset.event"

    kind: Literal["started", "progress", "completed", "failed", "paused"]
    run: str
    life: Count
    dataset: str
    at_ms: Count
    counts: dict[str, Json] = {}
    wall_s: float = 0


class RunUnserved(Contract):
    """A rows worker can't run this run's rows: its play is missing there, or has another digest."""

    TYPE: ClassVar[str] = "rowmill.run.unserved"

    kind: Literal["unserved"] = "unserved"
    run: str
    life: int
    worker: str
    reason: str
    at_ms: int


class RunHalted(Contract):
    """Calls of this life of a run may not start any more: a limit is reached, or credits are out."""

    TYPE: ClassVar[str] = "rowmill.run.halted"

    kind: Literal["halted"] = "halted"
    run: str
    life: int
    worker: str
    reason: str
    at_ms: int


class DeadLetter(Contract):
    """A record that nobody could read. `value_base64`: its bytes as they came."""

    TYPE: ClassVar[str] = "rowmill.dead-letter"

    topic: str
    partition: int
    offset: int
    reason: str
    key: str | None = None
    value_base64: str | None = None
    at_ms: int
