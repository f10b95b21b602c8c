"""Limits of runs: each purchase of a limited run is drawn for first (Q5, `--max-calls`, `--budget`).

One partition of `tool.requests` owns a run's limits: its owner makes each draw durable before it
grants it, so that three workers together buy no call too many. A run without limits asks nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from rowmill.streams.core.limits import Drawn, Limits, draw_id, refusal
from rowmill.streams.dispatch.calls import OpenCall
from rowmill.streams.dispatch.lanes import GATE_MS
from rowmill.streams.dispatch.owner import OwnerMail, Ownership
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.engine.tables import DurableTable, EntryUnreadable, NotOwned
from rowmill.topics import codec
from rowmill.topics.catalogue import LIMITS_CHANGELOG
from rowmill.topics.contracts import Draw, DrawAnswer, DrawEntry
from rowmill.topics.places import partition_of_key
from rowmill.topics.views import RunsView


class LimitStore:
    """The table `limits`: what was granted."""

    def __init__(self, table: DurableTable, ownership: Ownership) -> None:
        self._table = table
        self._ownership = ownership

    def has(self, partition: int, run: str, draw: str) -> bool:
        """Say whether that draw was granted. Raises: NotOwned."""
        return self._table.get(partition, f"{run}/{draw}") is not None

    def put(self, partition: int, asked: Draw) -> asyncio.Future[None]:
        """Store a granted draw; the future resolves once that is durable. Raises: NotOwned."""
        epoch = self._ownership.epoch(partition)
        entry = DrawEntry.model_construct(epoch=epoch, cost=asked.cost)
        return self._table.put(partition, f"{asked.run}/{asked.draw}", codec.encode(entry))

    def drawn(self, partition: int, run: str) -> Drawn:
        """Add up what a run has drawn. Raises: NotOwned, EntryUnreadable."""
        total = Drawn()
        for key, value in self._table.scan(partition, f"{run}/"):
            try:
                total = total.plus(codec.decode(DrawEntry, value).cost)
            except codec.UndecodableRecord as error:
                raise EntryUnreadable(LIMITS_CHANGELOG.name, key, f"{error}.") from error
        return total


class RunLimits:
    """Draws on the limits of runs: asked here for receipts, granted here for runs."""

    def __init__(
        self,
        runs: RunsView,
        store: LimitStore,
        mail: OwnerMail,
        ownership: Ownership,
        partitions: int,
    ) -> None:
        """`partitions`: of `tool.requests`."""
        self._runs = runs
        self._store = store
        self._mail = mail
        self._ownership = ownership
        self._partitions = partitions
        self._books: dict[tuple[int, str], Drawn] = {}
        self._granting: set[asyncio.Task[None]] = set()

    def connect(self, answered: Callable[[DrawAnswer], None]) -> None:
        """Name whom to tell of answers to draws that were asked here."""
        self._answered = answered

    def draw(self, call: OpenCall, replaced: str | None) -> str:
        """Ask whether a call's run may buy it. Returns: the draw's id, "" where nobody need be asked.

        `replaced`: purchase id of the receipt that it replaces, None for a new one.
        """
        receipt = call.receipt
        if receipt.asker is None or not self._limits(receipt.asker.run).any:
            return ""
        run, life = receipt.asker.run, receipt.asker.life
        asked = Draw(
            run=run,
            life=life,
            draw=draw_id(receipt.key, replaced),
            receipt=receipt.key,
            cost=receipt.cost,
            reply_partition=call.partition,
        )
        self._mail.draw(partition_of_key(run.encode(), self._partitions), asked)
        return asked.draw

    def asked(self, delivery: Delivery, asked: Draw) -> None:
        """Grant a draw once that is durable, or refuse it."""
        partition = delivery.partition
        if not self._ownership.owns(partition):
            return
        if asked.reply_partition >= self._partitions:
            delivery.ack()
            return
        book = self._books.get((partition, asked.run))
        if book is None:
            book = self._store.drawn(partition, asked.run)
        known = self._store.has(partition, asked.run, asked.draw)
        refused = None if known else refusal(book, self._limits(asked.run), asked.cost)
        self._books[partition, asked.run] = book if known or refused else book.plus(asked.cost)
        if refused is not None:
            self._answer(delivery, asked, refused)
            return
        granting = asyncio.create_task(
            self._grant(delivery, asked, self._store.put(partition, asked))
        )
        self._granting.add(granting)
        granting.add_done_callback(self._granting.discard)

    def answered(self, delivery: Delivery, answer: DrawAnswer) -> None:
        """Hand an answer on: its call is let out, or withheld."""
        delivery.ack()
        self._answered(answer)

    def lost(self, partitions: set[int]) -> None:
        """Add up anew what others may grant meanwhile."""
        for partition, run in list(self._books):
            if partition in partitions:
                del self._books[partition, run]

    async def _grant(self, delivery: Delivery, asked: Draw, durable: asyncio.Future[None]) -> None:
        """Tell of a grant that counts: one that may have come too late is its successor's to give."""
        partition = delivery.partition
        with suppress(NotOwned):
            epoch = self._ownership.epoch(partition)
            await durable
            while self._ownership.owns(partition) and self._ownership.epoch(partition) == epoch:
                if self._ownership.gate():
                    self._answer(delivery, asked, None)
                    return
                await asyncio.sleep(GATE_MS / 1000)

    def _answer(self, delivery: Delivery, asked: Draw, refused: str | None) -> None:
        answer = DrawAnswer(
            run=asked.run, life=asked.life, draw=asked.draw, receipt=asked.receipt, refused=refused
        )
        delivery.ack_after(self._mail.draw_answer(asked.reply_partition, answer))

    def _limits(self, run: str) -> Limits:
        record = self._runs.get(run)
        if record is None:
            return Limits()
        return Limits(record.options.max_calls, record.options.budget)
