"""Chunks: which rows go into one transaction of a sheet, and how far it then has come (S2).

A sheet reads partitions that it shares with other sheets, so a chunk says more than its rows: for
each partition the span of offsets it covers. Every record inside a span is either one of the
chunk's rows or none of this sheet's. Spans of a partition join without a gap, which is what makes
the sheet's own `next` a proof of what it holds (point 7 of the architecture).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Span(Generic[R]):
    """One partition's part of a chunk: all its offsets from `start` (None: the sheet never saw the
    partition) up to but not including `end`. `offsets[i]` belongs to `rows[i]`; offsets rise.
    """

    partition: int
    start: int | None
    end: int
    offsets: tuple[int, ...] = ()
    rows: tuple[R, ...] = ()

    def from_offset(self, next_: int) -> Span[R] | None:
        """Return what is left for a sheet that is already at `next_`; None where nothing is."""
        if next_ >= self.end:
            return None
        kept = [place for place, offset in enumerate(self.offsets) if offset >= next_]
        return replace(
            self,
            start=next_,
            offsets=tuple(self.offsets[place] for place in kept),
            rows=tuple(self.rows[place] for place in kept),
        )

    def without(self, offsets: Collection[int]) -> Span[R]:
        """Return the span with the rows at `offsets` left out; it still covers them."""
        kept = [place for place, offset in enumerate(self.offsets) if offset not in offsets]
        return replace(
            self,
            offsets=tuple(self.offsets[place] for place in kept),
            rows=tuple(self.rows[place] for place in kept),
        )


@dataclass(frozen=True, slots=True)
class Chunk(Generic[R]):
    """What one transaction writes: at most one span a partition."""

    spans: tuple[Span[R], ...]

    @property
    def row_count(self) -> int:
        """Rows in all spans."""
        return sum(len(span.rows) for span in self.spans)

    def without_partitions(self, partitions: Collection[int]) -> Chunk[R]:
        """Return the chunk without the spans of partitions that are no longer ours."""
        return Chunk(tuple(span for span in self.spans if span.partition not in partitions))

    def without_rows(self, refused: Collection[tuple[int, int]]) -> Chunk[R]:
        """Return the chunk without the rows at these (partition, offset); spans stay as they are."""
        return Chunk(
            tuple(
                span.without(
                    {offset for partition, offset in refused if partition == span.partition}
                )
                for span in self.spans
            )
        )


@dataclass(slots=True)
class _Waiting(Generic[R]):
    partition: int
    offset: int
    row: R
    size_bytes: int
    offered_ms: int


@dataclass(slots=True)
class _Place:
    """Where one partition is. `start`: end of the last chunk; `seen`: all below was judged."""

    start: int | None
    seen: int
    waiting: int = 0
    passed_ms: int | None = None


class ChunkBuilder(Generic[R]):
    """Cuts the rows of one sheet into chunks, in the order they were offered.

    A chunk is due when it is full (`rows_max` rows or `bytes_max` bytes) or when its oldest row
    waited `linger_ms`. One row above `bytes_max` makes a chunk of its own. Time is passed in,
    milliseconds of one monotonic clock.
    """

    def __init__(self, *, rows_max: int, bytes_max: int, linger_ms: int) -> None:
        if min(rows_max, bytes_max, linger_ms) < 1:
            raise ValueError("rows_max, bytes_max and linger_ms start at 1")
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._linger_ms = linger_ms
        self._waiting: deque[_Waiting[R]] = deque()
        self._places: dict[int, _Place] = {}
        self._bytes = 0

    @property
    def rows_waiting(self) -> int:
        """Rows offered and not taken yet."""
        return len(self._waiting)

    @property
    def bytes_waiting(self) -> int:
        """Their sizes, as offered."""
        return self._bytes

    def begin(self, partition: int, start: int | None) -> None:
        """Start a partition where the sheet is: its `next`, None where it never saw the partition.

        What was waiting of an earlier assignment of the partition is forgotten.
        """
        self.forget({partition})
        self._places[partition] = _Place(start, start or 0)

    def forget(self, partitions: Collection[int]) -> None:
        """Drop partitions that are no longer ours, and their waiting rows."""
        for partition in partitions:
            self._places.pop(partition, None)
        if any(waiting.partition in partitions for waiting in self._waiting):
            self._waiting = deque(w for w in self._waiting if w.partition not in partitions)
            self._bytes = sum(w.size_bytes for w in self._waiting)

    def offer(self, partition: int, offset: int, row: R, size_bytes: int, now_ms: int) -> bool:
        """Take a row in. Returns: False where the sheet already has it (its offset is below `next`).

        Raises: KeyError for a partition without `begin`, ValueError where the partition's offsets
        do not rise.
        """
        place = self._places[partition]
        if place.start is not None and offset < place.start:
            return False
        if offset < place.seen:
            raise ValueError(f"partition {partition}: offset {offset} after {place.seen - 1}")
        self._waiting.append(_Waiting(partition, offset, row, size_bytes, now_ms))
        self._bytes += size_bytes
        place.waiting += 1
        place.seen = offset + 1
        return True

    def passed(self, partition: int, end: int, now_ms: int) -> None:
        """Note that every record below `end` was offered or is none of this sheet's."""
        place = self._places[partition]
        if end > place.seen:
            place.seen = end
            if place.passed_ms is None:
                place.passed_ms = now_ms

    def due_ms(self, *, passed_linger_ms: int) -> int | None:
        """Return when the next chunk is due: 0 at once, None where there is nothing to write.

        `passed_linger_ms`: how long a sheet may stay behind over records that are not its own.
        """
        if len(self._waiting) >= self._rows_max or self._bytes >= self._bytes_max:
            return 0
        if self._waiting:
            return self._waiting[0].offered_ms + self._linger_ms
        passed = [place.passed_ms for place in self._places.values() if place.passed_ms is not None]
        return min(passed) + passed_linger_ms if passed else None

    def take(self) -> Chunk[R] | None:
        """Cut the next chunk, due or not; None where there is nothing to write."""
        taken: dict[int, list[_Waiting[R]]] = {}
        rows = size = 0
        while self._waiting and rows < self._rows_max:
            head = self._waiting[0]
            if rows and size + head.size_bytes > self._bytes_max:
                break
            self._waiting.popleft()
            taken.setdefault(head.partition, []).append(head)
            rows += 1
            size += head.size_bytes
        self._bytes -= size
        spans = [self._span(p, place, taken.get(p, [])) for p, place in self._places.items()]
        chunk = Chunk(tuple(span for span in spans if span is not None))
        return chunk if chunk.spans else None

    def _span(self, partition: int, place: _Place, taken: list[_Waiting[R]]) -> Span[R] | None:
        place.waiting -= len(taken)
        if place.waiting and not taken:
            return None  # its rows come later; what lies before the first of them can wait for it
        # A row that stays behind ends the span: nothing below a span's end may be left out.
        end = taken[-1].offset + 1 if place.waiting else place.seen
        if end <= (place.start or 0):
            return None
        span = Span(
            partition, place.start, end, tuple(w.offset for w in taken), tuple(w.row for w in taken)
        )
        place.start = end
        if not place.waiting:
            place.passed_ms = None
        return span
