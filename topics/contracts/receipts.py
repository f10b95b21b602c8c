"""The changelog of the table `receipts`, and what its owner is told through `tool.requests`."""

from __future__ import annotations

from typing import ClassVar, Literal

from rowmill.streams.core.receipts import Receipt
from rowmill.topics.contracts.base import Contract


class ReceiptEntry(Contract):
    """A receipt as it was made durable (key: receipt key), by the owner of `epoch`."""

    TYPE: ClassVar[str] = "rowmill.receipt"

    epoch: int
    receipt: Receipt


class Renewal(Contract):
    """A live former owner still works on a call: its lease lives `duration_ms` more (R4)."""

    TYPE: ClassVar[str] = "rowmill.receipt.renewal"

    kind: Literal["renew"] = "renew"
    receipt: str
    lease: str
    duration_ms: int


class Settlement(Contract):
    """A provider's answer that came to somebody who may not write it: the owner decides (R6).

    `lease`: under which it was sent; `receipt`: final, as it would have been stored.
    """

    TYPE: ClassVar[str] = "rowmill.receipt.settlement"

    kind: Literal["settle"] = "settle"
    lease: str
    receipt: Receipt


class Barrier(Contract):
    """Written by a partition's owner to itself: everything before it has been read once it comes."""

    TYPE: ClassVar[str] = "rowmill.receipt.barrier"

    kind: Literal["barrier"] = "barrier"
    id: str


class Forget(Contract):
    """An operator wants a receipt gone: the next ask buys anew."""

    TYPE: ClassVar[str] = "rowmill.receipt.forget"

    kind: Literal["forget"] = "forget"
    receipt: str
