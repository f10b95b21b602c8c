"""A call that is open in this process, and who waits for its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core.receipts import Asker, Receipt, usable_key_ms
from rowmill.streams.engine.delivery import Delivery
from rowmill.topics.contracts import ToolRequest

Question = tuple[str, str, str]
"""Run, row and call: what the copies of one request share."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """One request that waits for a receipt: whom to answer, and what to acknowledge then.

    `until_ms`: own monotonic clock up to which it waits for somebody else's call, None without end.
    """

    asker: Asker
    reply_partition: int
    delivery: Delivery
    until_ms: float | None = None

    @property
    def question(self) -> Question:
        """Whose question it is."""
        return (self.asker.run, self.asker.row, self.asker.call)


@dataclass(frozen=True, slots=True)
class Later:
    """A request that asks anew once an open call has ended."""

    waiter: Waiter
    ask_again: Callable[[], None]


@dataclass(slots=True, eq=False)
class OpenCall:
    """One purchase on its way: queued in a lane, sent, or waiting for a retry.

    It belongs to the process, not to an assignment: a redelivered request joins it. `waiters`: by
    (run, row, call), so an older copy of the same request is replaced. `sending`: a send is under
    way. `later`: forced requests that may not share this purchase; each asks anew once it has ended.
    `first_sent_ms`: own monotonic clock at the purchase's first send, before this process may be;
    None before it. `foreign_until_ms`: a former owner's lease lives at least that long. `permit`: the
    block that its last attempt's permit is of; `left`: whether that attempt's request left.
    """

    receipt: Receipt
    partition: int
    tool: ToolSpec
    provider: ProviderSpec
    input: Mapping[str, Any]
    timeout_s: float
    first_sent_ms: int | None = None
    waiters: dict[Question, Waiter] = field(default_factory=dict)
    later: list[Later] = field(default_factory=list)
    sending: bool = False
    foreign_until_ms: int = 0
    permit: str = ""
    left: bool = False

    def elapsed_ms(self, now_ms: int) -> int:
        """Return how long ago the purchase was first sent; 0 before that."""
        return 0 if self.first_sent_ms is None else max(0, now_ms - self.first_sent_ms)

    def key_is_old(self, now_ms: int) -> bool:
        """True where the provider may honour the key of an earlier send no longer (Q7)."""
        lifetime_ms = usable_key_ms(round(self.tool.key_lifetime_s * 1000))
        sent = self.tool.idempotent and self.receipt.sends > 0
        return sent and self.elapsed_ms(now_ms) >= lifetime_ms

    def deliveries(self) -> Iterator[Delivery]:
        """Yield the requests that this call's end will acknowledge or claim anew."""
        yield from (waiter.delivery for waiter in self.waiters.values())
        yield from (request.waiter.delivery for request in self.later)

    def join(self, waiter: Waiter) -> None:
        """Add a follower (Q4). The older copy of the same request is acknowledged (Q1).

        The copy waits no longer than the older one would have.
        """
        older = self.waiters.get(waiter.question)
        if older is not None and older.until_ms is not None:
            waiter = replace(waiter, until_ms=older.until_ms)
        self.waiters[waiter.question] = waiter
        if older is not None and older.delivery is not waiter.delivery:
            older.delivery.ack()

    def leave(self, question: Question, now_ms: int) -> Waiter | None:
        """Remove and return the follower with that question whose wait is over, None without one."""
        waiter = self.waiters.get(question)
        if waiter is not None and waiter.until_ms is not None and waiter.until_ms <= now_ms:
            return self.waiters.pop(question)
        for place, request in enumerate(self.later):
            until_ms = request.waiter.until_ms
            if request.waiter.question == question and until_ms is not None and until_ms <= now_ms:
                return self.later.pop(place).waiter
        return None


def waiter_of(request: ToolRequest, delivery: Delivery, now_ms: int) -> Waiter:
    """Return the waiter that a request becomes. `now_ms`: own monotonic clock."""
    asker = Asker(request.run, request.life, request.row, request.call, request.command)
    until_ms = None if request.wait_s is None else now_ms + request.wait_s * 1000
    return Waiter(asker, request.reply_partition, delivery, until_ms)
