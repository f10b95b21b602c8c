"""Permits in blocks: each is durable before a call uses it, so that windows outlive their owner (INV15).

A lane with windows may let a call out only with a permit of a block whose record is acknowledged. The
record also holds what the lane has sent, so whoever takes the partition over counts it all, whether it
left or not (`core.pacing.Carried`). Lanes without windows need none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from rowmill.errors import InfrastructureError
from rowmill.streams.core.pacing import Carried, Pacer
from rowmill.streams.dispatch.owner import Ownership
from rowmill.streams.engine.tables import DurableTable, EntryUnreadable, NotOwned
from rowmill.streams.ports import Clock, Note
from rowmill.topics import codec
from rowmill.topics.catalogue import PACING_CHANGELOG
from rowmill.topics.contracts import LaneEntry

BURST_PART = 8
"""A block holds at most an 8th of what the smallest window admits: so much a takeover may cost."""

REFRESHED_MS_MIN = 10_000
"""A lane that waits for a window of this length or longer writes how old its sends are by now, each 8th
of it: a new owner takes them for as old as the last record says."""

QUIET_MS = 1_000
"""A block that lasted for longer was too large."""


class PacingStore:
    """The table `pacing`. `process`: a random id of this process's life."""

    def __init__(self, table: DurableTable, ownership: Ownership, process: str) -> None:
        self._table = table
        self._ownership = ownership
        self.process = process

    def get(self, partition: int, lane: str) -> LaneEntry | None:
        """Return a lane as a former owner left it. Raises: NotOwned, EntryUnreadable."""
        value = self._table.get(partition, lane)
        try:
            return None if value is None else codec.decode(LaneEntry, value)
        except codec.UndecodableRecord as error:
            raise EntryUnreadable(PACING_CHANGELOG.name, lane, f"{error}.") from error

    def put(self, partition: int, lane: str, block: str, carried: Carried) -> asyncio.Future[None]:
        """Store a lane; the future resolves once that is durable. Raises: NotOwned."""
        entry = LaneEntry.model_construct(
            epoch=self._ownership.epoch(partition),
            process=self.process,
            block=block,
            sends=carried.sends,
            open=carried.open,
            held_ms=carried.held_ms,
            wall_ms=carried.wall_ms,
        )
        return self._table.put(partition, lane, codec.encode(entry))


@dataclass(slots=True)
class Block:
    """Permits that may be used. `left`: how many of them."""

    id: str
    left: int


@dataclass(slots=True)
class _Tenure:
    """What a lane has in one partition, since `epoch`. `coming`: permits whose block is not durable yet."""

    epoch: int
    size: int = 1
    reserved_ms: int = 0
    written_ms: int = 0
    coming: int = 0
    blocks: deque[Block] = field(default_factory=deque)
    reading: asyncio.Future[None] | None = None

    @property
    def left(self) -> int:
        return sum(block.left for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Means:
    """What the permits of all lanes share.

    `read_past`: waits until what lies in a partition now has been read: a former owner's calls, which
    may be under way, are known then and have their slots. `note`: the history.
    """

    store: PacingStore
    ownership: Ownership
    clock: Clock
    new_id: Callable[[], str]
    read_past: Callable[[int], Awaitable[None]]
    note: Note
    crash: Callable[[BaseException], None]


class Permits:
    """The permits of one lane. `come`: called when there may be more than `ready` said."""

    def __init__(self, lane: str, pacer: Pacer, means: Means, come: Callable[[], None]) -> None:
        self._lane = lane
        self._pacer = pacer
        self._means = means
        self._come = come
        self._tenures: dict[int, _Tenure] = {}

    def ready(self, partition: int) -> bool:
        """Whether a call of that partition may take a permit now; if not, `come` follows.

        Raises: NotOwned.
        """
        if self._pacer.burst is None:
            return True
        try:
            tenure = self._tenure(partition)
        except InfrastructureError as error:
            self._means.crash(error)
            return False
        if tenure.reading is not None:
            return False
        if tenure.left * 2 <= tenure.size:
            self._reserve(partition, tenure)
        return tenure.left > 0

    def use(self, partition: int) -> str:
        """Take a permit that is `ready`. Returns: its block's id, "" where none is needed."""
        if self._pacer.burst is None:
            return ""
        blocks = self._tenures[partition].blocks
        block = blocks[0]
        block.left -= 1
        if not block.left:
            blocks.popleft()
        return block.id

    def refresh(self) -> int | None:
        """Keep the record young while the lane waits. Returns: after how many ms again; None: never."""
        longest_ms = self._pacer.longest_ms
        if longest_ms < REFRESHED_MS_MIN:
            return None
        every_ms, now_ms = longest_ms // BURST_PART, self._means.clock.monotonic_ms()
        if all(now_ms - tenure.written_ms >= every_ms for tenure in self._tenures.values()):
            self.save()
        return every_ms

    def save(self) -> None:
        """Make known what the next owner must wait for: the lane was told to (G2)."""
        for partition, tenure in self._tenures.items():
            with suppress(NotOwned):
                if tenure.epoch == self._means.ownership.epoch(partition):
                    self._write(partition, tenure, 0)

    def _tenure(self, partition: int) -> _Tenure:
        if not self._means.ownership.owns(partition):
            raise NotOwned("pacing", partition)
        epoch = self._means.ownership.epoch(partition)
        tenure = self._tenures.get(partition)
        if tenure is None or tenure.epoch != epoch:
            tenure = _Tenure(epoch)
            self._inherit(partition, tenure)
            self._tenures[partition] = tenure
        return tenure

    def _inherit(self, partition: int, tenure: _Tenure) -> None:
        means = self._means
        entry = means.store.get(partition, self._lane)
        if entry is None or entry.process == means.store.process:
            return
        carried = Carried(entry.sends, entry.open, entry.held_ms, entry.wall_ms)
        at_ms = means.ownership.recovered_ms(partition)
        self._pacer.inherit(carried, at_ms, means.clock.wall_ms())
        tenure.reading = reading = asyncio.ensure_future(means.read_past(partition))
        reading.add_done_callback(lambda done: self._has_read(done, tenure))

    def _has_read(self, done: asyncio.Future[None], tenure: _Tenure) -> None:
        if done.cancelled():
            return  # the partition went to another owner
        if (error := done.exception()) is not None:
            self._means.crash(error)
            return  # nothing leaves any more: a former owner's calls are not known
        tenure.reading = None
        self._come()

    def _reserve(self, partition: int, tenure: _Tenure) -> None:
        """Ask for one more block, unless that is under way; it grows while blocks are used up fast."""
        if tenure.coming:
            return
        now_ms, burst = self._means.clock.monotonic_ms(), self._pacer.burst or 1
        quick = now_ms - tenure.reserved_ms < QUIET_MS
        size = tenure.size * 2 if quick else tenure.size // 2
        tenure.size = max(1, min(size, burst // BURST_PART))
        tenure.reserved_ms = now_ms
        tenure.coming = tenure.size
        try:
            self._write(partition, tenure, tenure.size)
        except NotOwned:
            tenure.coming = 0

    def _write(self, partition: int, tenure: _Tenure, permits: int) -> None:
        means, block = self._means, self._means.new_id()
        tenure.written_ms = means.clock.monotonic_ms()
        carried = self._pacer.carried(
            means.clock.monotonic_ms(), means.clock.wall_ms(), tenure.left + tenure.coming
        )
        held_until_ms = self._pacer.held_until_ms if carried.held_ms else 0
        durable = means.store.put(partition, self._lane, block, carried)

        def written(done: asyncio.Future[None]) -> None:
            if permits:
                tenure.coming = 0
            if done.cancelled() or done.exception() is not None:
                return
            means.note(
                "reserved",
                lane=self._lane,
                partition=partition,
                epoch=tenure.epoch,
                block=block,
                permits=permits,
                until=held_until_ms * 1_000_000,
            )
            if permits:
                tenure.blocks.append(Block(block, permits))
                self._come()

        durable.add_done_callback(written)
