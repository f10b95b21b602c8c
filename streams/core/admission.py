"""Which waiting row gets a slot next: round robin over runs, bounded in rows and bytes (D2, M1).

Kafka's order is not fairness: 100,000 rows of one run may lie before 10 of the next. So the rows
role reads ahead within a byte budget into one queue per run. A waiting entry is whatever the caller
put in, with its size; nothing of it is looked at here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

RunLife = tuple[str, int]
"""A run id and the number of the life whose rows these are."""


@dataclass(slots=True)
class _Run(Generic[T]):
    slots: int = 0
    open: int = 0
    waiting: deque[tuple[T, int]] = field(default_factory=deque)


class Admission(Generic[T]):
    """Slots of one rows worker. `row_max`: rows open over all runs; `read_ahead_bytes`: waiting."""

    def __init__(self, row_max: int, read_ahead_bytes: int) -> None:
        if row_max < 1 or read_ahead_bytes < 1:
            raise ValueError("row_max and read_ahead_bytes are at least 1")
        self._row_max = row_max
        self._read_ahead_bytes = read_ahead_bytes
        self._runs: dict[RunLife, _Run[T]] = {}
        self._turns: deque[RunLife] = deque()
        self.open = 0
        self.waiting = 0
        self.waiting_bytes = 0

    @property
    def full(self) -> bool:
        """True where no more should be read ahead."""
        return self.waiting_bytes >= self._read_ahead_bytes

    @property
    def hungry(self) -> bool:
        """True where reading ahead may go on: under half the budget, so that it does not flutter."""
        return self.waiting_bytes * 2 <= self._read_ahead_bytes

    def offer(self, run: RunLife, entry: T, size_bytes: int) -> None:
        """Queue one row of a run behind the run's others."""
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = _Run()
            self._turns.append(run)
        found.waiting.append((entry, size_bytes))
        self.waiting += 1
        self.waiting_bytes += size_bytes

    def give_slots(self, run: RunLife, slots: int) -> None:
        """Say how many rows of `run` may be open in this worker; 0 holds it back."""
        if run not in self._runs:
            self._runs[run] = _Run()
            self._turns.append(run)
        self._runs[run].slots = slots

    def next(self) -> tuple[RunLife, T] | None:
        """Give a slot to the next waiting row, None where there is no row or no slot for one."""
        if self.open >= self._row_max:
            return None
        for _ in range(len(self._turns)):
            run = self._turns[0]
            self._turns.rotate(-1)
            found = self._runs[run]
            if found.waiting and found.open < found.slots:
                entry, size_bytes = found.waiting.popleft()
                self.waiting -= 1
                self.waiting_bytes -= size_bytes
                found.open += 1
                self.open += 1
                return run, entry
        return None

    def ended(self, run: RunLife) -> None:
        """An open row of `run` gave its slot back. Raises: ValueError where none was open."""
        found = self._runs.get(run)
        if found is None or found.open < 1:
            raise ValueError(f"run {run} has no open row")
        found.open -= 1
        self.open -= 1
        self._forget_idle(run, found)

    def drop(self, where: Callable[[RunLife, T], bool]) -> list[T]:
        """Remove and return the waiting rows for which `where(run, entry)` is true."""
        gone: list[T] = []
        for run, found in list(self._runs.items()):
            kept: deque[tuple[T, int]] = deque()
            for entry, size_bytes in found.waiting:
                if where(run, entry):
                    gone.append(entry)
                    self.waiting -= 1
                    self.waiting_bytes -= size_bytes
                else:
                    kept.append((entry, size_bytes))
            found.waiting = kept
            self._forget_idle(run, found)
        return gone

    def runs_waiting(self) -> list[RunLife]:
        """Return the runs that have waiting rows."""
        return [run for run, found in self._runs.items() if found.waiting]

    def _forget_idle(self, run: RunLife, found: _Run[T]) -> None:
        """Nothing grows with the number of runs that ever were."""
        if not found.open and not found.waiting and not found.slots:
            del self._runs[run]
            self._turns.remove(run)
