"""What may be committed: per partition, the first delivered offset whose work is still open (S).

Kafka keeps one number per partition and group, the offset to read next. Work ends out of order,
so that number is the watermark: everything below it is durable, everything from it on is read again
after a death. Gaps in the log (compaction, markers of transactions) are never delivered, so they
are not waited for: only what was delivered counts.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class PartitionOffsets(Generic[T]):
    """The offsets of one partition in one assignment: delivered in order, acknowledged in any.

    `T` is what was delivered under an offset. It is held strongly until its acknowledgement, so that
    nothing that is in work can vanish from the count of what is in work. Not thread safe. All
    operations take constant time, `committable` and `head` amortised.
    """

    __slots__ = ("_next", "_open", "_order", "closed")

    def __init__(self, start: int) -> None:
        """Begin at `start`, the offset that is read first (>= 0). Raises: ValueError below 0."""
        if start < 0:
            raise ValueError(f"a partition can't start at offset {start}")
        self._next = start
        self._order: deque[int] = deque()
        self._open: dict[int, T] = {}
        self.closed = False

    def __len__(self) -> int:
        """How many delivered offsets are open."""
        return len(self._open)

    @property
    def next(self) -> int:
        """The offset after the last delivered one; `start` before any."""
        return self._next

    def deliver(self, offset: int, delivered: T) -> None:
        """Count `offset` as delivered and open.

        Raises: ValueError where it is below an offset that was delivered before: the log went back
        (truncated, topic made anew), and no commit of this assignment would mean anything.
        """
        if offset < self._next:
            raise ValueError(f"offset {offset} after {self._next - 1}: the log went back")
        self._next = offset + 1
        self._order.append(offset)
        self._open[offset] = delivered

    def ack(self, offset: int) -> bool:
        """Count the work of `offset` as durable. False: it was not open here, nothing changed.

        Twice is not an error. An offset of an older assignment, or one that was never delivered,
        is never open here.
        """
        if self.closed or offset not in self._open:
            return False
        del self._open[offset]
        return True

    def committable(self) -> int:
        """Return the offset to commit: the first open one, or the one after all delivered."""
        self._drop_acknowledged()
        return self._order[0] if self._order else self._next

    def head(self) -> T | None:
        """Return what was delivered under the first open offset, None where nothing is open."""
        self._drop_acknowledged()
        return self._open[self._order[0]] if self._order else None

    def close(self) -> list[T]:
        """End the assignment: acknowledgements are ignored from now on. Returns what was open."""
        self.closed = True
        still_open = [self._open[offset] for offset in self._order if offset in self._open]
        self._open.clear()
        self._order.clear()
        return still_open

    def _drop_acknowledged(self) -> None:
        while self._order and self._order[0] not in self._open:
            self._order.popleft()
