"""Input records on their way to a slot: read, stamped, held while their run can't go on, admitted.

`offer` never waits, so results of the same app are never kept back by waiting rows. What waits is
bounded by pausing partitions, and holds the record's bytes: no parsed row, no coroutine (D2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rowmill.settings import RECORD_BYTES_MAX
from rowmill.streams.core.admission import Admission, RunLife
from rowmill.streams.core.lives import OVER
from rowmill.streams.engine.app import RoleApp
from rowmill.streams.engine.dead_letter import set_aside
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.ports import Clock, Secrets
from rowmill.streams.rows.plays import PlayShelf
from rowmill.topics import codec
from rowmill.topics.catalogue import ROWS_INPUT, RUNS_EVENTS
from rowmill.topics.contracts import RowInput, RunHalted, RunRecord, RunUnserved
from rowmill.topics.places import partition_of_key
from rowmill.topics.views import RunsView

log = structlog.get_logger(__name__)

DELIVERY_BYTES = 2_048
"""What a waiting record holds beside its value: delivery, headers, queue entry (measured)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row that waits for a slot."""

    delivery: Delivery
    row: str
    index: int

    @property
    def size_bytes(self) -> int:
        """What this entry costs while it waits."""
        return DELIVERY_BYTES + len(self.delivery.value or b"")


class Intake:
    """What `rows.input` brings, up to its admission. `admit` opens a row that got a slot."""

    def __init__(
        self,
        app: RoleApp,
        runs: RunsView,
        shelf: PlayShelf,
        admission: Admission[Waiting],
        clock: Clock,
        secrets: Secrets,
        *,
        partitions: int,
        owned: Callable[[], int],
        admit: Callable[[Waiting, RunRecord], bool],
    ) -> None:
        """`partitions`: of `rows.input`; `owned`: how many of them are this worker's. `admit`
        returns False where the row took no slot (it ended before)."""
        self._app = app
        self._runs = runs
        self._shelf = shelf
        self._admission = admission
        self._clock = clock
        self._secrets = secrets
        self._partitions = partitions
        self._owned = owned
        self._admit = admit
        self._paused: set[int] = set()
        self._unstamped: list[tuple[Delivery, RowInput]] = []
        self._failing: set[RunLife] = set()
        self._halted: set[RunLife] = set()
        self._unserved: set[RunLife] = set()

    def offer(self, delivery: Delivery) -> None:
        """Take one record in; what nobody can read is set aside."""
        try:
            record = codec.decode(RowInput, delivery.value)
        except codec.UndecodableRecord as error:
            set_aside(self._app, delivery, str(error))
            return
        if self._over(record.run, record.life):
            delivery.ack()
        elif (
            record.row is None
            or record.index is None
            or not self._in_place(record.row, delivery.partition)
        ):
            self._stamp(delivery, record)
        else:
            self._queue(delivery, record.run, record.life, record.row, record.index)

    def pump(self) -> None:
        """Give every free slot to a waiting row; read ahead again once there is room."""
        while (found := self._admission.next()) is not None:
            (run, life), waiting = found
            record = self._runs.get(run)
            admitted = record is not None and self._admit(waiting, record)
            if not admitted:
                self._admission.ended((run, life))
        if self._paused and self._admission.hungry:
            for partition in self._paused:
                self._app.resume(ROWS_INPUT, partition)
            self._paused.clear()

    def run_changed(self, record: RunRecord) -> None:
        """Let a run's rows go on, hold them back, or drop those of a life that is over."""
        self._shelf.look_again(record)
        if record.state == "open" and not self._shelf.serves(record):
            self._tell_unserved(record)
        for delivery, row in self._take_unstamped(record.run):
            self._stamp(delivery, row)
        self._give_slots(record)
        over = self._admission.drop(lambda key, _: self._over(*key))
        for waiting in over:
            waiting.delivery.ack()
        self.pump()

    def failed(self, record: RunRecord) -> None:
        """A row failed: under on_row_error="fail" this life admits no more here (D3)."""
        if record.options.on_row_error == "fail":
            self._failing.add((record.run, record.life))
            self._give_slots(record)

    def halted(self, record: RunRecord, reason: str) -> bool:
        """Calls of this life may not start any more: admit no more here, and say so once.

        Returns: True where the life is over already.
        """
        key = (record.run, record.life)
        if self._over(*key):
            return True
        if key not in self._halted:
            self._halted.add(key)
            self._give_slots(record)
            log.warning("run_halted", run=record.run, reason=reason)
            note = RunHalted(
                run=record.run,
                life=record.life,
                worker=self._app.instance,
                reason=self._without_secret(reason),
                at_ms=self._clock.wall_ms(),
            )
            self._tell(note, "halted")
        return False

    def offer_again(self, waiting: Waiting) -> None:
        """Judge a row anew that waited for its own open copy."""
        if waiting.delivery.live:
            self.offer(waiting.delivery)

    def ready(self) -> None:
        """Partitions came or went: every run's share of slots is another (design, *Budgets*)."""
        for record in self._runs.all():
            if record.state not in OVER:
                self._give_slots(record)
        self.pump()

    def lost(self, partitions: set[int]) -> None:
        """Forget what waits in partitions that went to another owner.

        And who failed: if that ending is not durable, the next owner runs the row again.
        """
        self._failing.clear()
        self._halted.clear()
        self._admission.drop(lambda _, waiting: waiting.delivery.partition in partitions)
        self._unstamped = [
            entry for entry in self._unstamped if entry[0].partition not in partitions
        ]
        self._paused -= partitions

    def holds(self, delivery: Delivery) -> bool:
        """True where that record waits for its run, for a slot, or for a stamp."""
        return self._admission.waiting > 0 or any(delivery is held for held, _ in self._unstamped)

    def _over(self, run: str, life: int) -> bool:
        record = self._runs.get(run)
        if record is None or life > record.life:
            return False
        return life < record.life or record.state in OVER

    def _in_place(self, row: str, partition: int) -> bool:
        return partition_of_key(row.encode(), self._partitions) == partition

    def _queue(self, delivery: Delivery, run: str, life: int, row: str, index: int) -> None:
        waiting = Waiting(delivery, row, index)
        self._admission.offer((run, life), waiting, waiting.size_bytes)
        if self._admission.full and delivery.partition not in self._paused:
            self._paused.add(delivery.partition)
            self._app.pause(ROWS_INPUT, delivery.partition)
        self.pump()

    def _give_slots(self, record: RunRecord) -> None:
        key: RunLife = (record.run, record.life)
        slots = 0
        if record.state in OVER:
            self._failing.discard(key)
            self._halted.discard(key)
            self._unserved.discard(key)
        elif record.state == "open" and self._goes_on(key) and self._shelf.serves(record):
            share = record.options.concurrency * self._owned() / self._partitions
            slots = math.ceil(share)
        self._admission.give_slots(key, slots)

    def _goes_on(self, key: RunLife) -> bool:
        return key not in self._failing and key not in self._halted

    def _tell_unserved(self, record: RunRecord) -> None:
        """Say once a life that its rows wait here, and why; whoever drives the run shows it."""
        if (record.run, record.life) in self._unserved:
            return
        self._unserved.add((record.run, record.life))
        reason = self._without_secret(self._shelf.why_not(record))
        log.warning("run_unserved", run=record.run, reason=reason)
        note = RunUnserved(
            run=record.run,
            life=record.life,
            worker=self._app.instance,
            reason=reason,
            at_ms=self._clock.wall_ms(),
        )
        self._tell(note, "unserved")

    def _without_secret(self, reason: str) -> str:
        if (name := self._secrets.found_in(reason.encode())) is not None:
            return f"the reason carries the secret {name}: left out"
        return reason

    def _tell(self, note: RunHalted | RunUnserved, what: str) -> None:
        self._app.produce(
            RUNS_EVENTS,
            key=note.run,
            value=codec.encode(note),
            headers=codec.headers(
                note,
                id_=f"{note.run}/{note.life}/{what}/{self._app.instance}",
                source=self._app.conf.id,
                run=note.run,
            ),
        )

    def _take_unstamped(self, run: str) -> list[tuple[Delivery, RowInput]]:
        taken = [entry for entry in self._unstamped if entry[1].run == run and entry[0].live]
        self._unstamped = [entry for entry in self._unstamped if entry[1].run != run]
        return taken

    def _stamp(self, delivery: Delivery, record: RowInput) -> None:
        """Produce a record of another client to the partition of its row id, then acknowledge.

        A client that numbers no rows gets numbers from its offsets, which never repeat.
        """
        index = record.index
        if index is None:
            index = delivery.offset * self._partitions + delivery.partition
        row, refused = record.row, record.refused
        if row is None:
            run = self._runs.get(record.run)
            if run is None or not self._shelf.serves(run):
                self._unstamped.append((delivery, record))
                return
            identified = self._shelf.play(run).dataset.identify(record.values, index)
            row, refused = identified.row, identified.refused
        stamped = record.model_copy(update={"row": row, "index": index, "refused": refused})
        value = codec.encode(stamped)
        if (name := self._secrets.found_in(value)) is not None:
            refused = f"the row carries the secret {name}, which is not kept"
            stamped = stamped.model_copy(update={"values": {}, "refused": refused})
            value = codec.encode(stamped)
        if len(value) > RECORD_BYTES_MAX:
            refused = f"the row has {len(value):,} bytes, the limit is {RECORD_BYTES_MAX:,}"
            stamped = stamped.model_copy(update={"values": {}, "refused": refused})
            value = codec.encode(stamped)
        sent = self._app.produce(
            ROWS_INPUT,
            key=row,
            value=value,
            headers=codec.headers(
                stamped, id_=f"{record.run}/{row}/{index}", source=self._app.conf.id, run=record.run
            ),
        )
        delivery.ack_after(sent)
