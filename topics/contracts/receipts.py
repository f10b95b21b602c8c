"""The changelog of the table `receipts`."""

from __future__ import annotations

from typing import ClassVar

from rowmill.streams.core.receipts import Receipt
from rowmill.topics.contracts.base import Contract


class ReceiptEntry(Contract):
    """A receipt as it was made durable (key: receipt key), by the owner of `epoch`."""

    TYPE: ClassVar[str] = "rowmill.receipt"

    epoch: int
    receipt: Receipt
