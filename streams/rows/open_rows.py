"""Open rows: from the slot to the durable ending, and what happens to copies of them (I3, D2, D3).

The order at the end is the promise (point 1 of the architecture): the finished row is acknowledged
on `rows.completed`, then its entry is durable, and only then is its input acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from rowmill.errors import InfrastructureError
from rowmill.settings import Settings
from rowmill.streams.core.admission import Admission
from rowmill.streams.core.commands import runs_again
from rowmill.streams.core.lives import OVER
from rowmill.streams.engine.app import RoleApp
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.engine.tables import NotOwned
from rowmill.streams.ports import Secrets
from rowmill.streams.rows.entries import Ended, RowEntries
from rowmill.streams.rows.intake import Waiting
from rowmill.streams.rows.open_row import OpenRow, command_of
from rowmill.streams.rows.plays import PlayShelf
from rowmill.streams.rows.refusals import clean_values, too_large, without_secret
from rowmill.streams.rows.runner import RowEnding, RowRunner
from rowmill.topics import codec
from rowmill.topics.catalogue import ROWS_COMPLETED
from rowmill.topics.contracts import RowCompleted, RowInput, RunRecord

log = structlog.get_logger(__name__)


class OpenRows:
    """The rows that are open in this worker."""

    def __init__(
        self,
        app: RoleApp,
        settings: Settings,
        shelf: PlayShelf,
        runner: RowRunner,
        entries: RowEntries,
        admission: Admission[Waiting],
        secrets: Secrets,
    ) -> None:
        self._app = app
        self._row_bytes_max = settings.row_bytes_max
        self._retained_max = settings.row_max
        self._retained = 0
        self._told_soon = False
        self._shelf = shelf
        self._runner = runner
        self._entries = entries
        self._admission = admission
        self._secrets = secrets
        self._open: dict[tuple[str, str], OpenRow] = {}
        self._left: dict[tuple[str, int], list[Delivery]] = {}

    def connect(
        self,
        slot_free: Callable[[], None],
        failed: Callable[[RunRecord], None],
        halted: Callable[[RunRecord, str], bool],
        offer_again: Callable[[Waiting], None],
    ) -> None:
        """Name whom to tell of a free slot, of a failed row, of a run whose calls may not start any
        more and why (True: that life of it is over), of a copy that may have to run."""
        self._slot_free = slot_free
        self._failed = failed
        self._halted = halted
        self._offer_again = offer_again

    def admit(self, waiting: Waiting, run: RunRecord) -> bool:
        """Open a row that got a slot. Returns: False where it ended before and takes none."""
        known = self._open.get((run.run, waiting.row))
        if known is not None:
            self._copy_of_open(known, waiting, run)
            return False
        partition = waiting.delivery.partition
        ended = self._entries.ended(partition, run.run, waiting.row)
        if ended is not None and not self._runs_again(ended, waiting, run):
            self._copy_of(ended.index, waiting, run)
            return False
        row = OpenRow(
            run,
            run.life,
            waiting.row,
            waiting.index,
            partition,
            self._app.epoch(partition),
            [waiting.delivery],
            again=ended is not None,
        )
        self._open[run.run, waiting.row] = row
        self._app.note("admitted", run=run.run, row=row.row, index=row.index, partition=partition)
        record = codec.decode(RowInput, waiting.delivery.value)
        if record.refused is not None:
            self._end(row, record, RowEnding("failed", error=record.refused))
        elif self._shelf.play(run).dataset.pure:
            self._end(row, record, self._runner.run_pure(row, record))
        else:
            row.task = asyncio.create_task(self._run(row, record))
        return True

    def works_on(self, delivery: Delivery) -> bool:
        """True where an open row will acknowledge that record."""
        if any(delivery in left for left in self._left.values()):
            return True
        return any(
            delivery in row.deliveries or any(delivery is copy.delivery for copy in row.later)
            for row in self._open.values()
        )

    def lost(self, partitions: set[int]) -> None:
        """Cancel the rows of partitions that went to another owner: it runs them from the top."""
        for row in [row for row in self._open.values() if row.partition in partitions]:
            if row.task is not None:
                row.task.cancel()
            self._close(row)
        for life, left in list(self._left.items()):
            self._left[life] = [each for each in left if each.partition not in partitions]

    def withhold(self, run: str, row: str, reason: str) -> None:
        """Leave a row pending whose call may not start in this life of its run: the next one feeds it.

        Its record is acknowledged once that life is over: until then a next owner must look at it.
        """
        found = self._open.get((run, row))
        if found is None or found.task is None:
            return
        found.task.cancel()
        self._close(found)
        self._app.note("withheld", run=run, row=row, index=found.index)
        if self._halted(found.run, reason):
            for delivery in found.deliveries:
                delivery.ack()
        else:
            self._left.setdefault((run, found.life), []).extend(found.deliveries)
        for copy in found.later:
            self._offer_again(copy)
        self._slot_free()

    def run_changed(self, record: RunRecord) -> None:
        """Let go of rows that were left pending in a life that is over."""
        for run, life in list(self._left):
            if run == record.run and (life < record.life or record.state in OVER):
                for delivery in self._left.pop((run, life)):
                    delivery.ack()

    def _runs_again(self, ended: Ended, waiting: Waiting, run: RunRecord) -> bool:
        """Only the row itself runs again, never a duplicate of it."""
        same = ended.index == waiting.index
        return same and runs_again(ended.status, ended.command, command_of(run))

    def _copy_of_open(self, known: OpenRow, waiting: Waiting, run: RunRecord) -> None:
        """A copy shares the open row's ending, unless a newer command might run it again."""
        if known.index != waiting.index:
            self._copy_of(known.index, waiting, run)
        elif runs_again("failed", known.command.number, command_of(run)):
            known.later.append(waiting)
        else:
            known.deliveries.append(waiting.delivery)

    def _copy_of(self, index: int, waiting: Waiting, run: RunRecord) -> None:
        """The same index again is a redelivery, another one a duplicate that counts once (I3)."""
        delivery = waiting.delivery
        partition = delivery.partition
        if index == waiting.index or self._entries.has_duplicate(
            partition, run.run, waiting.row, waiting.index
        ):
            delivery.ack()
            return
        durable = self._entries.put_duplicate(
            partition, run.run, run.life, waiting.row, waiting.index, duplicate_of=index
        )
        delivery.ack_after(durable)

    async def _run(self, row: OpenRow, record: RowInput) -> None:
        try:
            ending = await self._runner.run(row, record)
        except asyncio.CancelledError:
            raise
        except InfrastructureError as error:
            self._app.fail(error)  # says by itself what is wrong, and where
        except Exception as error:
            log.exception("row_broke", run=row.run.run, row=row.row)
            self._app.fail(error)
        else:
            if not row.closed:
                self._end(row, record, ending)

    def _end(self, row: OpenRow, record: RowInput, ending: RowEnding) -> None:
        completed = self._completed(row, record.dataset, ending, record.values)
        value = codec.encode(completed)
        if (name := self._secrets.found_in(value)) is not None:
            ending = without_secret(row.where, ending, name, self._secrets)
            values = clean_values(record.values, self._secrets)
            completed = self._completed(row, record.dataset, ending, values)
            value = codec.encode(completed)
        if len(value) > self._row_bytes_max:
            ending = too_large(row.where, ending, len(value), self._row_bytes_max)
            completed = self._completed(row, record.dataset, ending, {})
            value = codec.encode(completed)
        sent = self._app.produce(
            ROWS_COMPLETED,
            key=row.row,
            value=value,
            partition=row.partition,
            headers=codec.headers(
                completed,
                id_=f"{row.run.run}/{row.row}",
                source=self._app.conf.id,
                run=row.run.run,
            ),
        )
        sent.add_done_callback(lambda done: self._published(row, ending, done))
        if ending.status == "failed":
            self._failed(row.run)
        self._retain(row)

    def _retain(self, row: OpenRow) -> None:
        """Give the slot of a row whose columns are done to the next one, which calls meanwhile.

        As many rows as there are slots may wait for their ending to be durable; beyond that a row
        keeps its slot, so a slow broker slows admission.
        """
        if self._retained >= self._retained_max:
            return
        self._retained += 1
        row.retained = True
        self._admission.ended((row.run.run, row.life))
        if not self._told_soon:  # not at once: admission itself may have come here (D6)
            self._told_soon = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._told_soon = False
        self._slot_free()

    def _completed(
        self,
        row: OpenRow,
        dataset: str,
        ending: RowEnding,
        values: dict[str, Any],
    ) -> RowCompleted:
        return RowCompleted.model_construct(
            kind="row",
            run=row.run.run,
            run_number=row.run.number,
            life=row.life,
            epoch=row.epoch,
            dataset=dataset,
            row=row.row,
            index=row.index,
            status=ending.status,
            error=ending.error,
            failed_column=ending.failed_column,
            values=values,
            cells=ending.cells,
        )

    def _published(self, row: OpenRow, ending: RowEnding, done: asyncio.Future[object]) -> None:
        if row.closed or done.cancelled() or done.exception() is not None:
            return  # the partition is another owner's, or the engine ends this process
        self._note("published", row, ending, offset=getattr(done.result(), "offset", -1))
        try:
            durable = self._entries.put_ending(
                row.partition,
                row.run.run,
                row.life,
                row.row,
                row.index,
                ending.status,
                ending.calls,
                command=row.command.number,
                again=row.again,
            )
        except NotOwned:
            self._close(row)
            return
        durable.add_done_callback(lambda done: self._durable(row, ending, done))

    def _durable(self, row: OpenRow, ending: RowEnding, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._note("entered", row, ending)
        for delivery in row.deliveries:
            delivery.ack_if(done)
        self._close(row)
        for copy in row.later:
            self._offer_again(copy)
        if not row.retained:
            self._slot_free()

    def _note(self, event: str, row: OpenRow, ending: RowEnding, **more: object) -> None:
        self._app.note(
            event,
            run=row.run.run,
            row=row.row,
            index=row.index,
            status=ending.status,
            epoch=row.epoch,
            partition=row.partition,
            **more,
        )

    def _close(self, row: OpenRow) -> None:
        if not row.closed:
            row.closed = True
            del self._open[row.run.run, row.row]
            if row.retained:
                self._retained -= 1
            else:
                self._admission.ended((row.run.run, row.life))
