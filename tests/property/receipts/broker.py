"""The broker: one partition of requests and words, and the changelog of its receipts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rowmill.streams.core import receipts
from rowmill.streams.core.commands import Force
from rowmill.streams.core.receipts import Asker, Receipt

ATTEMPTS = 3


@dataclass(frozen=True)
class Request:
    """A row's question as it lies in the partition."""

    key: str
    asker: Asker
    force: Force | None = None
    token: str | None = None
    stale_after_ms: int | None = None


@dataclass(frozen=True)
class Word:
    """A record of the partition. `id`: of the lease or of the barrier."""

    kind: Literal["ask", "settle", "renew", "barrier"]
    key: str
    request: Request | None = None
    receipt: Receipt | None = None
    id: str = ""


class Broker:
    """Keeps what arrived. `epoch`: of the partition's present owner."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.acked: set[int] = set()
        self.epoch = 0
        self._changelog: dict[str, tuple[int, Receipt]] = {}
        self._kept: dict[str, Receipt] = {}

    def append(self, word: Word) -> None:
        """Take a word in."""
        self.words.append(word)

    @property
    def watermark(self) -> int:
        """Where an owner begins to read: the first open offset."""
        offset = 0
        while offset in self.acked:
            offset += 1
        return offset

    def recovered(self) -> dict[str, Receipt]:
        """Return the table that a new owner finds."""
        return {key: receipt for key, (_, receipt) in self._changelog.items()}

    def store(self, epoch: int, receipt: Receipt) -> None:
        """Apply a record as recovery does: never over one of a higher epoch.

        What the present owner completed stands for ever (R6). A record that its former owner was cut
        off with is nobody's answer: the owner does not see it, and is told by a settlement instead.
        """
        self._check(receipt)
        known = self._changelog.get(receipt.key)
        if known is not None and epoch < known[0]:
            return
        assert receipt.purchase is not None
        kept = self._kept.get(receipt.purchase)
        assert kept is None or receipt == kept, f"a completed receipt was overwritten: {receipt}"
        if receipt.state == "completed" and epoch == self.epoch:
            self._kept[receipt.purchase] = receipt
        self._changelog[receipt.key] = (epoch, receipt)

    def _check(self, receipt: Receipt) -> None:
        assert (receipt.lease is not None) == (receipt.state == "running")
        assert (receipt.settled_wall_ms is not None) == receipt.final
        assert (receipt.failure is not None) == (receipt.state == "failed")
        assert receipt.attempts <= ATTEMPTS
        assert receipt.deaths <= receipts.SENDS_ENDED_BY_DEATH_MAX
        assert len(receipt.tokens) <= receipts.TOKENS_KEPT
        if receipt.state == "completed":
            answered = str(receipt.output).split("/")[0]
            assert answered == receipt.purchase, "an answer of another purchase"
