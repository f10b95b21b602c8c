"""A call that is open in this process, and who waits for its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core.receipts import Asker, Receipt, usable_key_ms
from rowmill.streams.core.retries import RetryPolicy
from rowmill.streams.engine.delivery import Delivery
from rowmill.topics.contracts import ToolRequest

Question = tuple[str, str, str]
"""Run, row and call: what the copies of one request share."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """One request that waits for a receipt: whom to answer, and what to acknowledge then.

    `until_ms`: own monotonic clock up to which it waits for somebody else's call, None without end.
    `ask_again`: takes the request up anew, as if it had just come.
    """

    asker: Asker
    reply_partition: int
    delivery: Delivery
    ask_again: Callable[[], None] = field(compare=False)
    until_ms: float | None = None

    @property
    def question(self) -> Question:
        """Whose question it is."""
        return (self.asker.run, self.asker.row, self.asker.call)


@dataclass(slots=True)
class OpenBatch:
    """What an open call has besides where it is a batch.

    `members`: its calls until it is `sealed`, which fixes who is in it (`Receipt.members`). `known`: the
    members' receipts as they were then; `outcomes`: what became of them; `again_ms`: how long those
    wait that go into another batch.
    """

    members: dict[str, OpenCall] = field(default_factory=dict)
    sealed: bool = False
    known: dict[str, Receipt] = field(default_factory=dict)
    outcomes: dict[str, Receipt] = field(default_factory=dict)
    again_ms: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class OpenCall:
    """One purchase on its way: queued in a lane, sent, or waiting for a retry.

    It belongs to the process, not to an assignment: a redelivered request joins it. `waiters`: by
    (run, row, call), so an older copy of the same request is replaced. `sending`: a send is under
    way. `later`: forced requests that may not share this purchase; each asks anew once it has ended.
    `draw`: id of the draw on its run's limit that it waits for, "" for none.
    `first_sent_ms`: own monotonic clock at the purchase's first send, before this process may be;
    None before it. `foreign_until_ms`: a former owner's lease lives at least that long. `permit`: the
    block that its last attempt's permit is of; `left`: whether that attempt's request left. `batch`:
    where it stands for many; `alone`: it was in one, and is asked by itself now.
    """

    receipt: Receipt
    partition: int
    tool: ToolSpec
    provider: ProviderSpec
    input: Mapping[str, Any]
    timeout_s: float
    first_sent_ms: int | None = None
    waiters: dict[Question, Waiter] = field(default_factory=dict)
    later: list[Waiter] = field(default_factory=list)
    sending: bool = False
    draw: str = ""
    foreign_until_ms: int = 0
    permit: str = ""
    left: bool = False
    batch: OpenBatch | None = None
    alone: bool = False

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
        yield from (waiter.delivery for waiter in self.later)

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
        for place, later in enumerate(self.later):
            until_ms = later.until_ms
            if later.question == question and until_ms is not None and until_ms <= now_ms:
                return self.later.pop(place)
        return None


def waiter_of(
    request: ToolRequest, delivery: Delivery, now_ms: int, ask_again: Callable[[], None]
) -> Waiter:
    """Return the waiter that a request becomes. `now_ms`: own monotonic clock."""
    asker = Asker(request.run, request.life, request.row, request.call, request.command)
    until_ms = None if request.wait_s is None else now_ms + request.wait_s * 1000
    return Waiter(asker, request.reply_partition, delivery, ask_again, until_ms)


def ask_again(waiters: Iterable[Waiter]) -> None:
    """Let requests be taken up anew, those that are still this process's."""
    for waiter in waiters:
        if waiter.delivery.live:
            waiter.ask_again()


def policy_of(call: OpenCall) -> RetryPolicy:
    """Return the retry policy of a call: the tool's, else its provider's, in the core's words."""
    declared = call.tool.retry or call.provider.retry
    return RetryPolicy(
        attempts=declared.attempts,
        backoff_ms=round(declared.backoff_s * 1000),
        backoff_ms_max=round(declared.backoff_s_max * 1000),
        deadline_ms=round(declared.deadline_s * 1000),
        idempotent=call.tool.idempotent,
        key_lifetime_ms=round(call.tool.key_lifetime_s * 1000),
    )
