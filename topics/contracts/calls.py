"""`tool.requests` and `provider.results`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from rowmill.plays.specs import TIMEOUT_S_MAX
from rowmill.topics.contracts.base import (
    KEY_CHARS_MAX,
    Contract,
    Count,
    Json,
    Key,
    Money,
    RowKey,
    Seconds,
)

CALL_CHARS_MAX = 4_096
"""A call is named after its column, and the names of columns are a play's own affair."""


class ToolRequest(Contract):
    """A question of one row. `call`: its name within the row, the same at every replay.

    `reply_partition`: partition of `provider.results` to answer to. `asked`: 0 at first, counted
    up when a row asks again for a result that never came. `lane_version`: version of the `lanes`
    record the asker used; dispatch refuses an older one. `command`: number of the run's command.
    """

    TYPE: ClassVar[str] = "rowmill.tool.request"

    kind: Literal["ask"] = "ask"
    run: RowKey
    life: Count
    dataset: str = Field(max_length=KEY_CHARS_MAX)
    row: RowKey
    call: str = Field(max_length=CALL_CHARS_MAX)
    receipt: Key
    tool: str = Field(max_length=KEY_CHARS_MAX)
    input: dict[str, Json]
    reply_partition: Count
    asked: Count = 0
    lane_version: Count = 1
    command: Count = 0
    force: Literal["all", "failed"] | None = None
    force_token: str | None = Field(None, max_length=KEY_CHARS_MAX)
    stale_after_s: Seconds | None = None
    timeout_s: float | None = Field(None, gt=0, le=TIMEOUT_S_MAX)
    wait_s: Seconds | None = None


class CallError(BaseModel):
    """Why a call failed: a kind of `core.receipts.FailureKind` and the provider's words."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    message: str
    status_code: Count | None = None


class ProviderResult(Contract):
    """The answer to one question of one row.

    `sends`: requests that reached the provider for this call, 0 where `reused`. `reused`: answered
    from a receipt that this (run, row, call) did not buy, or from another row's call in flight.
    `withheld`: the call may not start any more in this life of the run, `error` says why; the row stays
    pending.
    """

    TYPE: ClassVar[str] = "rowmill.provider.result"

    run: str = Field(max_length=KEY_CHARS_MAX)
    life: Count
    row: str = Field(max_length=KEY_CHARS_MAX)
    call: str = Field(max_length=CALL_CHARS_MAX)
    receipt: str = Field(max_length=KEY_CHARS_MAX)
    tool: str = Field(max_length=KEY_CHARS_MAX)
    provider: str = Field(max_length=KEY_CHARS_MAX)
    status: Literal["completed", "failed", "skipped", "withheld"]
    output: Json = None
    error: CallError | None = None
    reused: bool = False
    sends: Count = 0
    cost: Money = 0
    epoch: Count = 0
