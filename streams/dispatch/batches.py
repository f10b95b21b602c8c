"""Batches: members gather here, leave in one request, and are settled one by one (Q2).

A batch is an open call like any other, with a receipt of its own; its lane, caller and takeover know no
difference. What differs is here: who is in it, what is asked, and what becomes of each member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from rowmill.plays.specs import BatchSpec, ToolSpec
from rowmill.streams.core import batching
from rowmill.streams.core.identity import canonical
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Failure, Receipt
from rowmill.streams.dispatch.calls import OpenBatch, OpenCall, Waiter, policy_of
from rowmill.streams.dispatch.lanes import Lanes
from rowmill.streams.dispatch.owner import Ownership, ReceiptStore
from rowmill.streams.engine.tables import NotOwned
from rowmill.streams.ports import Clock

log = structlog.get_logger(__name__)

QUESTION_BYTES_MAX = 256 << 10
"""Of one batch's questions: its receipt holds them, and is one record."""

LINGERS_MAX = 10
"""A member waits for as many lingers while others keep coming, or a batch before it is under way."""

RESPONSE_MEMBERS = 8
"""A batch's response may be as large as so many answers of the largest size."""

TOOLS_KEPT = 1_000
"""There is one for each batching tool of each open run."""

ASKED_ALONE = (400, 413, 422)
"""Statuses that speak of what stands in a request: which member is to blame shows when each is alone."""


@dataclass(slots=True)
class _Gathering:
    """Members that wait for others. Times: own monotonic clock."""

    first_ms: int
    last_ms: int
    members: dict[str, OpenCall] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    size_bytes: int = 0


class Batches:
    """The batches of this process. `new_id` makes random ids."""

    def __init__(
        self,
        store: ReceiptStore,
        lanes: Lanes,
        ownership: Ownership,
        clock: Clock,
        new_id: Callable[[], str],
        open_calls: dict[str, OpenCall],
        bytes_max: int,
    ) -> None:
        """`open_calls`: all of this process, by receipt. `bytes_max`: of one answer (R9)."""
        self._store = store
        self._lanes = lanes
        self._ownership = ownership
        self._clock = clock
        self._new_id = new_id
        self._open = open_calls
        self._bytes_max = bytes_max
        self._gathering: dict[tuple[int, int], _Gathering] = {}
        self._tools: dict[int, tuple[ToolSpec, ToolSpec]] = {}

    def takes(self, call: OpenCall) -> bool:
        """Say whether a call goes into a batch: not once it was asked alone, under its own key."""
        fresh = call.receipt.first_sent_wall_ms is None and not call.alone
        return call.tool.batch is not None and call.batch is None and fresh

    def add(self, call: OpenCall) -> None:
        """Let a call gather with others of its tool and partition."""
        spec = _spec(call)
        place = (id(call.tool), call.partition)
        size_bytes = len(canonical(call.input))
        now_ms = self._clock.monotonic_ms()
        name = batching.identity(_layout(spec), call.receipt.key, call.input)
        group = self._gathering.get(place)
        if group is not None and (
            name in group.names or group.size_bytes + size_bytes > QUESTION_BYTES_MAX
        ):
            self._close(place)
            group = None
        if group is None:
            group = self._gathering[place] = _Gathering(now_ms, now_ms)
            self._look_later(place, group, spec.linger_ms)
        group.members[call.receipt.key] = call
        group.names.add(name)
        group.size_bytes += size_bytes
        group.last_ms = now_ms
        if len(group.members) >= spec.size:
            self._close(place)

    def rejoin(self, member: OpenCall) -> OpenCall | None:
        """Return the batch of a stored member where it has to be opened; None where it is open, or
        never left: then the member gathers anew. Raises: NotOwned."""
        key = member.receipt.batch
        assert key is not None
        if key in self._open:
            return None
        stored = self._store.get(member.partition, key)
        if stored is None or stored.final:
            member.receipt = replace(member.receipt, batch=None)
            return None
        batch = OpenCall(
            receipt=stored,
            partition=member.partition,
            tool=member.tool,
            provider=member.provider,
            input={},
            timeout_s=member.timeout_s,
            batch=OpenBatch(sealed=True),
        )
        self._open[key] = batch
        return batch

    def seal(self, call: OpenCall) -> asyncio.Future[Any] | None:
        """Fix who is in a batch that leaves, and store that with each member.

        Returns: a future of that being durable; None where nobody waits for the batch any more.
        Raises: NotOwned.
        """
        batch = call.batch
        assert batch is not None
        done: list[asyncio.Future[None]] = []
        if not batch.sealed:
            members = {k: m for k, m in batch.members.items() if self._open.get(k) is m}
            call.receipt = replace(
                call.receipt, members=tuple((k, dict(m.input)) for k, m in members.items())
            )
            for member in members.values():
                member.receipt = replace(member.receipt, batch=call.receipt.key)
                done.append(self._store.put(call.partition, member.receipt))
            batch.sealed = True
        for key, _ in call.receipt.members:
            if (receipt := self._member(call, key)) is not None:
                batch.known[key] = receipt
        if not batch.known:
            self._store.delete(call.partition, call.receipt.key)
            return None
        return asyncio.gather(*done)

    def request(self, call: OpenCall) -> tuple[ToolSpec, dict[str, Any], int]:
        """Return the operation, the body and the most bytes of the response of a sealed batch."""
        known = self._tools.get(id(call.tool))
        if known is None or known[0] is not call.tool:
            spec = _spec(call)
            tool = call.tool.model_copy(update={"method": "POST", "path": spec.path})
            if len(self._tools) >= TOOLS_KEPT:
                self._tools.clear()
            known = self._tools[id(call.tool)] = (call.tool, tool)
        members = call.receipt.members
        body = batching.request(_layout(_spec(call)), members)
        return known[1], body, self._bytes_max * min(len(members), RESPONSE_MEMBERS)

    def keep(self, call: OpenCall, ended: Receipt) -> asyncio.Future[Any]:
        """Store what becomes of each member of a batch that ended, and forget the batch.

        Raises: NotOwned.
        """
        assert call.batch is not None
        call.batch.outcomes = dict(self._outcomes(call, ended, stored=True))
        done = [self._store.put(call.partition, each) for each in call.batch.outcomes.values()]
        done.append(self._store.delete(call.partition, call.receipt.key))
        return asyncio.gather(*done)

    def settlements(self, call: OpenCall, ended: Receipt) -> list[Receipt]:
        """Return the final receipts of a batch's members, as a former owner hands them over (R6)."""
        outcomes = self._outcomes(call, ended, stored=False)
        return [receipt for _, receipt in outcomes if receipt.final]

    def settled(self, call: OpenCall) -> Iterator[tuple[OpenCall, int]]:
        """Yield the open members of a batch whose outcomes are durable, and after how many ms those that
        are not final are to be offered again."""
        assert call.batch is not None
        self._open.pop(call.receipt.key, None)
        for key, receipt in call.batch.outcomes.items():
            member = self._open.get(key)
            if member is not None and member.receipt.batch == call.receipt.key:
                member.receipt = receipt
                again_ms = call.batch.again_ms.get(key)
                member.alone = again_ms is None
                yield member, again_ms or 0

    def waiters_of(self, call: OpenCall) -> Iterator[Waiter]:
        """Yield who waits for a call, or for a member of it where it is a batch."""
        yield from call.waiters.values()
        for key, _ in call.receipt.members:
            if (member := self._open.get(key)) is not None:
                yield from member.waiters.values()

    def _outcomes(
        self, call: OpenCall, ended: Receipt, *, stored: bool
    ) -> Iterator[tuple[str, Receipt]]:
        assert call.batch is not None
        layout, now_ms = _layout(_spec(call)), self._clock.wall_ms()
        found: dict[str, batching.Answer] = {}
        if ended.state == "completed":
            found = dict(batching.answers_of(layout, ended.members, ended.output))
        failure = ended.failure
        alone = failure is not None and (
            failure.kind is FailureKind.OUT_OF_CREDITS
            or (failure.status_code in ASKED_ALONE and len(ended.members) > 1)
        )
        for key, _ in ended.members:
            member = self._member(call, key) if stored else call.batch.known.get(key)
            if member is None:
                continue
            if key in found:
                attempts = policy_of(call).attempts
                said = found[key]
                if isinstance(said, batching.Again):
                    call.batch.again_ms[key] = said.after_ms
                settled = batching.settled(member, said, attempts, now_ms)
                yield key, self._within_size(settled)
            elif alone:
                yield key, batching.left_alone(member)
            else:
                yield key, batching.failed_with(member, ended, now_ms)

    def _member(self, call: OpenCall, key: str) -> Receipt | None:
        """Return a member's receipt while it waits for this batch. Raises: NotOwned."""
        member = self._open.get(key)
        receipt = member.receipt if member is not None else self._store.get(call.partition, key)
        if receipt is None or receipt.final or receipt.batch != call.receipt.key:
            return None
        return receipt

    def _within_size(self, receipt: Receipt) -> Receipt:
        if receipt.state != "completed" or receipt.output is None:
            return receipt
        size = len(canonical(receipt.output))
        if size <= self._bytes_max:
            return receipt
        message = (
            f'receipt "{receipt.key}": the answer has {size:,} bytes, the limit is '
            f"{self._bytes_max:,}"
        )
        failure = Failure(FailureKind.TOO_LARGE, message)
        return replace(receipt, state="failed", output=None, failure=failure)

    def _look_later(self, place: tuple[int, int], group: _Gathering, linger_ms: int) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(linger_ms / 1000, self._look, place, group, linger_ms)

    def _look(self, place: tuple[int, int], group: _Gathering, linger_ms: int) -> None:
        if self._gathering.get(place) is not group:
            return
        now_ms = self._clock.monotonic_ms()
        still_ms, waited_ms = now_ms - group.last_ms, now_ms - group.first_ms
        quiet = still_ms >= linger_ms and not self._under_way(place)
        if quiet or waited_ms >= LINGERS_MAX * linger_ms:
            self._close(place)
        else:
            self._look_later(place, group, max(1, linger_ms - still_ms))

    def _under_way(self, place: tuple[int, int]) -> bool:
        """Say whether a batch of that tool and partition is being sent: its answer makes room for more
        questions, which the next one may still take in (as Nagle's algorithm has it, RFC 896)."""
        return any(
            call.batch is not None and call.sending and (id(call.tool), call.partition) == place
            for call in self._open.values()
        )

    def _close(self, place: tuple[int, int]) -> None:
        """Queue what has gathered as one call; whoever was lost or answered meanwhile is out of it."""
        group = self._gathering.pop(place)
        members = {k: m for k, m in group.members.items() if self._open.get(k) is m}
        if not members:
            return
        first = next(iter(members.values()))
        receipt = Receipt(
            key=f"{batching.KEY_PREFIX}{self._new_id()}",
            tool=first.tool.id,
            provider=first.provider.id,
            purchase=self._new_id(),
            cost=sum(member.receipt.cost for member in members.values()),
            opened_wall_ms=self._clock.wall_ms(),
        )
        call = OpenCall(
            receipt=receipt,
            partition=first.partition,
            tool=first.tool,
            provider=first.provider,
            input={},
            timeout_s=max(member.timeout_s for member in members.values()),
            batch=OpenBatch(members=members),
        )
        self._open[receipt.key] = call
        try:
            self._lanes.of(call.provider).offer(call)
        except NotOwned:
            log.info("batch_left_to_next_owner", batch=receipt.key)
            del self._open[receipt.key]


def _spec(call: OpenCall) -> BatchSpec:
    assert call.tool.batch is not None
    return call.tool.batch


def _layout(spec: BatchSpec) -> batching.Layout:
    return batching.Layout(
        members=spec.members,
        match=spec.match,
        echo=spec.echo,
        answers=spec.answers,
        answer=spec.answer,
        error=spec.error,
        status=spec.status,
        retry_after=spec.retry_after,
    )
