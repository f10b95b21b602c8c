"""How a run stands at this moment: what the command line shows, and what may be wrong."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from rowmill.streams.core.accounting import Counts

Phase = Literal["starting", "feeding", "running", "ending", "writing the sheet", "done"]

SPEED_WINDOW_S = 30.0
"""Rows per second are those of this long: long enough to be calm, short enough to be true."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at a run.

    `total`: rows of the input, None until known. `fed`: rows durable in Kafka. `running`: rows that
    a worker can have open. `rows_per_s`, `left_s`: over the last 30 s; None where nothing ended
    yet. `behind`: records that the sheet lacks at the end. `trouble`: what keeps the run from going on, "" where nothing is known to.
    """

    phase: Phase
    run: str
    dataset: str
    life: int
    total: int | None
    fed: int
    counts: Counts
    running: int
    rows_per_s: float | None
    left_s: float | None
    behind: int = 0
    trouble: str = ""


class Speed:
    """Rows per second over the last `SPEED_WINDOW_S`."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, ended: int) -> None:
        """Take in how many rows have ended by `now_s` (monotonic)."""
        self._seen.append((now_s, ended))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > SPEED_WINDOW_S:
            self._seen.popleft()

    def rows_per_s(self) -> float | None:
        """Return the speed, None where nothing can be said yet."""
        if len(self._seen) < 2:
            return None
        (since_s, before), (now_s, ended) = self._seen[0], self._seen[-1]
        if now_s <= since_s or ended <= before:
            return None
        return (ended - before) / (now_s - since_s)
