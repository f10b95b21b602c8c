"""What a process has while it owns the partition, as in dispatch/owner.py and engine/ownership.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowmill.streams.core.receipts import Receipt
from tests.property.receipts.broker import Broker, Word
from tests.property.receipts.process import Process, Promise

GATE_MS = 8_000
"""As in dispatch/app.py: the session's 10 s less 2 s."""


class NotOwned(Exception):
    """The partition is another's: whoever owns it does the work again."""


@dataclass(frozen=True)
class Delivery:
    """A word in work. Acknowledging one of an assignment that is over changes nothing."""

    offset: int
    assignment: int


class Owner:
    """Table, epoch and gate of one process.

    `epoch`: None while its table is closed. `leaving`: told that the partition is revoked, and
    getting through what is on its wire.
    """

    def __init__(self, process: Process, broker: Broker, new_id: Callable[[str], str]) -> None:
        self.process = process
        self.broker = broker
        self.new_id = new_id
        self.epoch: int | None = None
        self.leaving = False
        self.heard_ms = 0
        self.recovered_ms = 0
        self.assignment = 0
        self.position = 0
        self._table: dict[str, Receipt] = {}
        self._writes: list[Promise] = []
        self._barriers: dict[str, Promise] = {}

    def begin(self) -> None:
        """Recover, and raise the epoch, before the first word is read."""
        self.broker.epoch += 1
        self.leaving = False
        self.epoch = self.broker.epoch
        self._table = self.broker.recovered()
        self.recovered_ms = self.heard_ms = self.process.clock()
        self.assignment += 1
        self.position = self.broker.watermark

    def end(self) -> None:
        """Close the table: writes that are not acknowledged fail here, and may arrive all the same."""
        self.epoch = None
        writes, self._writes = self._writes, []
        for durable in writes:
            durable.settle(error=NotOwned())

    @property
    def owns(self) -> bool:
        """True until it has been told that the partition is revoked."""
        return self.epoch is not None and not self.leaving

    def gate(self) -> bool:
        """Open while nobody else can own the partition."""
        return self.process.clock() - self.heard_ms < GATE_MS

    def owned_epoch(self) -> int:
        """Return the own epoch. Raises: NotOwned."""
        if self.epoch is None:
            raise NotOwned
        return self.epoch

    def get(self, key: str) -> Receipt | None:
        """Return the stored receipt. Raises: NotOwned."""
        self.owned_epoch()
        return self._table.get(key)

    def put(self, receipt: Receipt) -> Promise:
        """Write a receipt: seen here at once, durable once the promise is kept. Raises: NotOwned."""
        epoch = self.owned_epoch()
        self._table[receipt.key] = receipt
        durable = self.process.promise()
        self._writes.append(durable)

        def acknowledged(_: Promise) -> None:
            self._writes = [write for write in self._writes if write is not durable]
            durable.settle()

        self.process.send(lambda: self.broker.store(epoch, receipt)).then(acknowledged)
        return durable

    def mail(self, word: Word) -> Promise:
        """Send a word to whoever owns the partition."""
        return self.process.send(lambda: self.broker.append(word))

    def barrier(self, key: str) -> Promise:
        """Return what is kept once all that lies in the partition now has been read here."""
        name = self.new_id("b")
        passed = self._barriers[name] = self.process.promise()
        self.mail(Word("barrier", key, id=name))
        return passed

    def passed(self, barrier: str) -> None:
        """A barrier came back."""
        if promise := self._barriers.pop(barrier, None):
            promise.settle()

    def live(self, delivery: Delivery) -> bool:
        """True while the partition is owned in the assignment that a word came with."""
        return self.epoch is not None and delivery.assignment == self.assignment

    def ack(self, delivery: Delivery) -> None:
        """Say that what a word asked for is durable."""
        if self.live(delivery):
            self.broker.acked.add(delivery.offset)
