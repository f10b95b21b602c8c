"""Records of `rows.completed` in: each is judged in its partition's order and given to its sheet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.ports import Secrets
from rowmill.streams.sink.decoding import decode_write
from rowmill.streams.sink.flush import SheetFlush
from rowmill.streams.sink.sheets import Sheets
from rowmill.topics.codec import UndecodableRecord

log = structlog.get_logger(__name__)

RUN_KNOWN_WITHIN_S = 10.0
"""How long a row waits for its run's record: `runs` is written before rows, but read beside them."""


@dataclass(slots=True)
class _Place:
    """One owned partition. `position`: every record below it was judged."""

    position: int
    held: deque[Delivery] = field(default_factory=deque)
    paused: bool = False
    deadline: asyncio.TimerHandle | None = None


class Intake:
    """Judges records and stops their fetching where a sheet, or a run's record, is behind.

    `pause`, `resume`: the fetching of a partition. `set_aside`: send to the dead letter. A record
    that carries a secret goes there too, without its value: the rows role lets none out, so this one
    came from elsewhere (R10).
    """

    def __init__(
        self,
        *,
        pause: Callable[[int], None],
        resume: Callable[[int], None],
        set_aside: Callable[[Delivery, str], None],
        secrets: Secrets,
    ) -> None:
        self._pause = pause
        self._resume = resume
        self._set_aside = set_aside
        self._secrets = secrets
        self._sheets: Sheets | None = None
        self._places: dict[int, _Place] = {}
        self._pressed: set[int] = set()

    def connect(self, sheets: Sheets) -> None:
        """Name the sheets; before the first record."""
        self._sheets = sheets

    def begin(self, reads_from: Mapping[int, int]) -> None:
        """Take partitions over, each read from the offset given."""
        for partition, offset in reads_from.items():
            self._places[partition] = _Place(offset)

    def forget(self, partitions: Collection[int]) -> None:
        """Let partitions go; records that were held are delivered again."""
        for partition in partitions:
            place = self._places.pop(partition, None)
            if place is not None and place.deadline is not None:
                place.deadline.cancel()

    def positions(self) -> Mapping[int, int]:
        """Return, by partition, the offset below which every record was judged."""
        return {partition: place.position for partition, place in self._places.items()}

    def offer(self, delivery: Delivery) -> None:
        """Take one record in, in the order of its partition."""
        place = self._places.get(delivery.partition)
        if place is None:
            return  # its partition left; it is delivered to the next owner
        if place.held or not self._judge(place, delivery):
            self._hold(place, delivery)
        if self._pressed and not place.paused:
            self._fetch_or_not(delivery.partition, place)  # an assignment forgets all pauses

    def holds(self, delivery: Delivery) -> bool:
        """True where the record waits for its run's record."""
        place = self._places.get(delivery.partition)
        return place is not None and bool(place.held) and place.held[0] is delivery

    def runs_changed(self) -> None:
        """Judge again what waited for a run's record."""
        for partition, place in self._places.items():
            if place.held:
                self._release(partition, place)

    def note_pressure(self, flush: SheetFlush, pressed: bool) -> None:
        """Stop fetching while a sheet has too many rows waiting, go on when none has.

        Each partition may bring rows of that sheet, so all of them stop.
        """
        before = bool(self._pressed)
        (self._pressed.add if pressed else self._pressed.discard)(id(flush))
        if pressed:
            log.warning("fetching_stopped", sheet=flush.url, rows_waiting=flush.rows_waiting)
        if bool(self._pressed) != before:
            for partition, place in self._places.items():
                self._fetch_or_not(partition, place)

    def _fetch_or_not(self, partition: int, place: _Place) -> None:
        place.paused = bool(self._pressed or place.held)
        (self._pause if place.paused else self._resume)(partition)

    def _judge(self, place: _Place, delivery: Delivery) -> bool:
        """Give a record to its sheet, or set it aside. Returns: False where its run is unknown."""
        assert self._sheets is not None
        try:
            self._refuse_secret(delivery)
            write = decode_write(delivery.value)
        except UndecodableRecord as error:
            self._set_aside(delivery, str(error))
        else:
            found = self._sheets.of_run(write.run)
            if found is None:
                return False
            flush, record = found
            flush.offer(delivery, write, record)
        place.position = delivery.offset + 1
        return True

    def _refuse_secret(self, delivery: Delivery) -> None:
        name = self._secrets.found_in(delivery.value or b"")
        if name is not None:
            raise UndecodableRecord(f"it carries the secret {name}")

    def _hold(self, place: _Place, delivery: Delivery) -> None:
        place.held.append(delivery)
        if place.deadline is None:
            self._fetch_or_not(delivery.partition, place)
            self._set_deadline(place, delivery)

    def _set_deadline(self, place: _Place, head: Delivery) -> None:
        loop = asyncio.get_running_loop()
        place.deadline = loop.call_later(RUN_KNOWN_WITHIN_S, self._give_up, head)

    def _give_up(self, head: Delivery) -> None:
        place = self._places.get(head.partition)
        if place is None or not place.held or place.held[0] is not head:
            return
        run = decode_write(head.value).run
        self._set_aside(
            head, f'no run "{run}" in the topic runs, {RUN_KNOWN_WITHIN_S:.0f} s after its row came'
        )
        place.position = head.offset + 1
        place.held.popleft()
        self._release(head.partition, place)

    def _release(self, partition: int, place: _Place) -> None:
        while place.held and self._judge(place, place.held[0]):
            place.held.popleft()
        if place.deadline is not None:
            place.deadline.cancel()
            place.deadline = None
        if place.held:
            self._set_deadline(place, place.held[0])
        else:
            self._fetch_or_not(partition, place)
