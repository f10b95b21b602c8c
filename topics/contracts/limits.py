"""What a run's purchases draw from its limits: questions to the limits' owner, and its changelog."""

from __future__ import annotations

from typing import ClassVar, Literal

from rowmill.topics.contracts.base import Contract, Count, Key, Money, RowKey


class Draw(Contract):
    """May a run make one more purchase? Asked of the partition that owns the run's limits.

    `draw`: its id, the same at every repetition (`core.limits.draw_id`); `reply_partition`: of
    `tool.requests`, where the receipt lives.
    """

    TYPE: ClassVar[str] = "rowmill.limit.draw"

    kind: Literal["draw"] = "draw"
    run: RowKey
    life: Count
    draw: Key
    receipt: Key
    cost: Money = 0
    reply_partition: Count


class DrawAnswer(Contract):
    """What came of a draw. `refused`: why the purchase may not be made, None where it may."""

    TYPE: ClassVar[str] = "rowmill.limit.answer"

    kind: Literal["drawn"] = "drawn"
    run: RowKey
    life: Count
    draw: Key
    receipt: Key
    refused: str | None = None


class DrawEntry(Contract):
    """A draw that was granted (key: run id/draw id), by the owner of `epoch`."""

    TYPE: ClassVar[str] = "rowmill.limit.entry"

    epoch: Count
    cost: Money = 0
