"""What this process may do as the owner of partitions, asked anew each time: they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rowmill.streams.core.receipts import Lease, Receipt
from rowmill.streams.engine.app import RoleApp
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.engine.tables import DurableTable, EntryUnreadable
from rowmill.topics import codec
from rowmill.topics.catalogue import RECEIPTS_CHANGELOG, TOOL_REQUESTS
from rowmill.topics.contracts import (
    Barrier,
    Contract,
    Draw,
    DrawAnswer,
    ReceiptEntry,
    Renewal,
    Settlement,
)


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who this process is, and what it owns.

    `gate`: its last successful group heartbeat is young enough, so that nobody else can own its
    partitions. `recovered_ms`: own monotonic clock at the end of a partition's recovery.
    """

    instance: str
    epoch: Callable[[int], int]
    owns: Callable[[int], bool]
    gate: Callable[[], bool]
    recovered_ms: Callable[[int], int]

    def surely_owns(self, partition: int, epoch: int) -> bool:
        """Whether nobody else can own the partition now, and this process has since that epoch.

        After an older epoch of its own it is a former owner like any other (R6).
        """
        return self.owns(partition) and self.gate() and self.epoch(partition) == epoch

    def lease(self, partition: int, id_: str, duration_ms: int) -> Lease:
        """Return a new lease of this owner. Raises: NotOwned."""
        return Lease(id_, self.epoch(partition), self.instance, duration_ms)


class ReceiptStore:
    """The table `receipts` in the core's words."""

    def __init__(self, table: DurableTable, ownership: Ownership) -> None:
        self._table = table
        self._ownership = ownership

    def get(self, partition: int, key: str) -> Receipt | None:
        """Return the stored receipt. Raises: NotOwned, EntryUnreadable."""
        value = self._table.get(partition, key)
        return None if value is None else _receipt(key, value)

    def put(self, partition: int, receipt: Receipt) -> asyncio.Future[None]:
        """Store a receipt; the future resolves once it is durable. Raises: NotOwned."""
        entry = ReceiptEntry.model_construct(
            epoch=self._ownership.epoch(partition), receipt=receipt
        )
        return self._table.put(partition, receipt.key, codec.encode(entry))

    def scan(self, partition: int) -> Iterator[Receipt]:
        """Yield the stored receipts of a partition, by key.

        Raises, in between too: NotOwned, EntryUnreadable.
        """
        for key, value in self._table.scan(partition, ""):
            yield _receipt(key, value)

    def delete(self, partition: int, key: str) -> asyncio.Future[None]:
        """Forget a receipt; the future resolves once that is durable. Raises: NotOwned."""
        return self._table.delete(partition, key)


def _receipt(key: str, value: bytes) -> Receipt:
    try:
        receipt = codec.decode(ReceiptEntry, value).receipt
    except codec.UndecodableRecord as error:
        raise EntryUnreadable(RECEIPTS_CHANGELOG.name, key, f"{error}.") from error
    if receipt.key != key:
        reason = f"it is receipt {receipt.key!r}."
        raise EntryUnreadable(RECEIPTS_CHANGELOG.name, key, reason)
    return receipt


class OwnerMail:
    """Words to the present owner of a receipt, by the one way that it reads in order.

    A process that was the owner writes no receipt any more: it sends renewals and answers here, and
    the present owner, who may be itself again, takes them.
    """

    def __init__(self, app: RoleApp) -> None:
        self._app = app
        self._barriers: dict[str, tuple[int, asyncio.Future[None]]] = {}

    def renew(self, partition: int, receipt: Receipt) -> asyncio.Future[object]:
        """Say that a call is still open under the receipt's lease."""
        lease = receipt.lease
        if lease is None:
            raise ValueError(f"receipt {receipt.key} has no lease")
        return self._send(
            partition,
            receipt.key,
            Renewal(receipt=receipt.key, lease=lease.id, duration_ms=lease.duration_ms),
        )

    def settle(self, partition: int, receipt: Receipt, lease_id: str) -> asyncio.Future[object]:
        """Hand an answer over."""
        settlement = Settlement.model_construct(kind="settle", lease=lease_id, receipt=receipt)
        return self._send(partition, receipt.key, settlement)

    def draw(self, partition: int, asked: Draw) -> asyncio.Future[object]:
        """Ask the owner of a run's limits for one more purchase."""
        return self._send(partition, asked.draw, asked)

    def draw_answer(self, partition: int, answer: DrawAnswer) -> asyncio.Future[object]:
        """Answer whoever asked for a purchase."""
        return self._send(partition, answer.draw, answer)

    async def read_past(self, partition: int, barrier_id: str) -> None:
        """Return once everything that lay in the partition at this call has been read.

        Cancelled where the partition goes to another owner.
        """
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers[barrier_id] = partition, passed
        try:
            await self._send(partition, barrier_id, Barrier(id=barrier_id))
            await passed
        finally:
            self._barriers.pop(barrier_id, None)

    def arrived(self, barrier: Barrier, delivery: Delivery) -> None:
        """A barrier came back: whoever waits for it goes on."""
        delivery.ack()
        _, passed = self._barriers.get(barrier.id, (0, None))
        if passed is not None and not passed.done():
            passed.set_result(None)

    def lost(self, partitions: set[int]) -> None:
        """Let nobody wait for barriers in partitions that went to another owner."""
        for partition, passed in self._barriers.values():
            if partition in partitions:
                passed.cancel()

    def _send(self, partition: int, key: str, word: Contract) -> asyncio.Future[object]:
        return self._app.produce(
            TOOL_REQUESTS,
            key=key,
            value=codec.encode(word),
            partition=partition,
            headers=codec.headers(word, id_=f"{key}/{word.TYPE}", source=self._app.conf.id),
        )
