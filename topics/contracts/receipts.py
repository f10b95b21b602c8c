"""The changelog of the table `receipts`, and what its owner is told through `tool.requests`."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from rowmill.streams.core.receipts import Receipt
from rowmill.topics.contracts.base import (
    INT64_MAX,
    KEY_CHARS_MAX,
    KEY_PATTERN,
    Contract,
    Count,
    Key,
)

LEASE_MS_MAX = 86_400_000
"""A day: a renewal of more would keep a call from its next owner for good."""


def _bounded(receipt: Receipt) -> Receipt:
    """Refuse what no owner could work with. The core trusts its receipts; topics are anybody's."""
    numbers = (
        receipt.sends, receipt.attempts, receipt.deaths, receipt.opened_wall_ms,
        receipt.first_sent_wall_ms, receipt.settled_wall_ms, receipt.wake_wall_ms,
    )  # fmt: skip
    if len(receipt.key) > KEY_CHARS_MAX or not re.fullmatch(KEY_PATTERN, receipt.key):
        raise ValueError("its key can't be one")
    if any(number is not None and not 0 <= number <= INT64_MAX for number in numbers):
        raise ValueError("a count or a time is below 0 or beyond 64 bits")
    if receipt.lease is not None and not 0 <= receipt.lease.duration_ms <= LEASE_MS_MAX:
        raise ValueError("its lease lives longer than a day, or is over before it begins")
    if receipt.lease is not None and not 0 <= receipt.lease.epoch <= INT64_MAX:
        raise ValueError("the epoch of its lease is no epoch")
    if receipt.cost < 0:
        raise ValueError("its cost is below 0")
    if receipt.state == "running" and (receipt.lease is None or receipt.purchase is None):
        raise ValueError("a running receipt has a lease and a purchase")
    if receipt.state == "failed" and receipt.failure is None:
        raise ValueError("a failed receipt says why")
    return receipt


BoundedReceipt = Annotated[Receipt, AfterValidator(_bounded)]


class ReceiptEntry(Contract):
    """A receipt as it was made durable (key: receipt key), by the owner of `epoch`."""

    TYPE: ClassVar[str] = "rowmill.receipt"

    epoch: Count
    receipt: BoundedReceipt


class Renewal(Contract):
    """A live former owner still works on a call: its lease lives `duration_ms` more (R4)."""

    TYPE: ClassVar[str] = "rowmill.receipt.renewal"

    kind: Literal["renew"] = "renew"
    receipt: Key
    lease: str
    duration_ms: int = Field(ge=0, le=LEASE_MS_MAX)


class Settlement(Contract):
    """A provider's answer that came to somebody who may not write it: the owner decides (R6).

    `lease`: under which it was sent; `receipt`: final, as it would have been stored.
    """

    TYPE: ClassVar[str] = "rowmill.receipt.settlement"

    kind: Literal["settle"] = "settle"
    lease: str
    receipt: BoundedReceipt


class Barrier(Contract):
    """Written by a partition's owner to itself: everything before it has been read once it comes."""

    TYPE: ClassVar[str] = "rowmill.receipt.barrier"

    kind: Literal["barrier"] = "barrier"
    id: str


class Forget(Contract):
    """An operator wants a receipt gone: the next ask buys anew."""

    TYPE: ClassVar[str] = "rowmill.receipt.forget"

    kind: Literal["forget"] = "forget"
    receipt: Key
