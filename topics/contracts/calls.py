"""`tool.requests` and `provider.results`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from rowmill.topics.contracts.base import Contract, Json


class ToolRequest(Contract):
    """A question of one row. `call`: its name within the row, the same at every replay.

    `reply_partition`: partition of `provider.results` to answer to. `asked`: 0 at first, counted
    up when a row asks again for a result that never came. `lane_version`: version of the `lanes`
    record the asker used; dispatch refuses an older one. `command`: number of the run's command.
    """

    TYPE: ClassVar[str] = "rowmill.tool.request"

    kind: Literal["ask"] = "ask"
    run: str
    life: int
    dataset: str
    row: str
    call: str
    receipt: str
    tool: str
    input: dict[str, Json]
    reply_partition: int = Field(ge=0)
    asked: int = Field(0, ge=0)
    lane_version: int = 1
    command: int = Field(0, ge=0)
    force: Literal["all", "failed"] | None = None
    force_token: str | None = None
    stale_after_s: float | None = None
    timeout_s: float | None = None
    wait_s: float | None = None


class CallError(BaseModel):
    """Why a call failed: a kind of `core.receipts.FailureKind` and the provider's words."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    message: str
    status_code: int | None = None


class ProviderResult(Contract):
    """The answer to one question of one row.

    `sends`: requests that reached the provider for this call, 0 where `reused`. `reused`: answered
    from a receipt that this (run, row, call) did not buy, or from another row's call in flight.
    """

    TYPE: ClassVar[str] = "rowmill.provider.result"

    run: str
    life: int
    row: str
    call: str
    receipt: str
    tool: str
    provider: str
    status: Literal["completed", "failed", "skipped"]
    output: Json = None
    error: CallError | None = None
    reused: bool = False
    sends: int = Field(0, ge=0)
    cost: float = 0
    epoch: int = 0
