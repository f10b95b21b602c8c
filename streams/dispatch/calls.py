"""A call that is open in this process, and who waits for its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core.receipts import Asker, Receipt
from rowmill.streams.engine.delivery import Delivery
from rowmill.topics.contracts import ToolRequest


@dataclass(frozen=True, slots=True)
class Waiter:
    """One request that waits for a receipt: whom to answer, and what to acknowledge then."""

    asker: Asker
    reply_partition: int
    delivery: Delivery


@dataclass(slots=True, eq=False)
class OpenCall:
    """One purchase on its way: queued in a lane, sent, or waiting for a retry.

    It belongs to the process, not to an assignment: a redelivered request joins it. `waiters`: by
    (run, row, call), so an older copy of the same request is replaced. `sending`: a send is under
    way. `opened_ms`: own monotonic clock when this process opened it. `foreign_until_ms`: a former
    owner's lease lives at least that long.
    """

    receipt: Receipt
    partition: int
    tool: ToolSpec
    provider: ProviderSpec
    input: Mapping[str, Any]
    timeout_s: float
    opened_ms: int
    waiters: dict[tuple[str, str, str], Waiter] = field(default_factory=dict)
    sending: bool = False
    foreign_until_ms: int = 0

    def join(self, waiter: Waiter) -> None:
        """Add a follower (Q4). The older copy of the same request is acknowledged (Q1)."""
        key = (waiter.asker.run, waiter.asker.row, waiter.asker.call)
        older = self.waiters.get(key)
        self.waiters[key] = waiter
        if older is not None and older.delivery is not waiter.delivery:
            older.delivery.ack()


def waiter_of(request: ToolRequest, delivery: Delivery) -> Waiter:
    """Return the waiter that a request becomes."""
    asker = Asker(request.run, request.life, request.row, request.call)
    return Waiter(asker, request.reply_partition, delivery)
