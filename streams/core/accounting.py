"""Counts of a run: the same names in events, progress, `--json`, the page and the handle (*Counts*).

Disjoint, adding up to `total`: completed, failed, skipped, duplicates, pending, cancelled. Over them:
reused (completed rows that needed no call of this run), calls (requests that reached a provider,
retries included), calls_reused (answers from a receipt or another row's call in flight).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Tally = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CallTally:
    """What one row's calls cost, per provider id: calls, calls_reused (counts), spent (money)."""

    calls: Tally = field(default_factory=dict)
    calls_reused: Tally = field(default_factory=dict)
    spent: Tally = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a run, in one partition or summed over all. Rows are whole numbers."""

    completed: int = 0
    failed: int = 0
    skipped: int = 0
    duplicates: int = 0
    reused: int = 0
    calls: Tally = field(default_factory=dict)
    calls_reused: Tally = field(default_factory=dict)
    spent: Tally = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """Rows that have an ending; never above the total."""
        return self.completed + self.failed + self.skipped + self.duplicates

    def after_row(self, status: str, calls: CallTally) -> Counts:
        """Return the counts after one more row ended as completed, failed or skipped.

        Raises: ValueError for another status.
        """
        if status not in ("completed", "failed", "skipped"):
            raise ValueError(f"no ending of a row: {status}")
        reused = status == "completed" and not any(calls.calls.values())
        return replace(
            self,
            completed=self.completed + (status == "completed"),
            failed=self.failed + (status == "failed"),
            skipped=self.skipped + (status == "skipped"),
            reused=self.reused + reused,
            calls=_sum(self.calls, calls.calls),
            calls_reused=_sum(self.calls_reused, calls.calls_reused),
            spent=_sum(self.spent, calls.spent),
        )

    def after_retry(self, status: str, calls: CallTally) -> Counts:
        """Return the counts after a failed row ran once more: its old ending goes, calls add up.

        `calls`: of the second run alone. Raises: ValueError where no row failed, or as `after_row`.
        """
        if self.failed < 1:
            raise ValueError("a row runs again, yet none has failed")
        return replace(self, failed=self.failed - 1).after_row(status, calls)

    def after_duplicate(self) -> Counts:
        """Return the counts after one more duplicate was set aside (I3)."""
        return replace(self, duplicates=self.duplicates + 1)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain JSON, for `RowEntry.counts` and reports."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "skipped": self.skipped,
            "duplicates": self.duplicates,
            "reused": self.reused,
            "calls": dict(self.calls),
            "calls_reused": dict(self.calls_reused),
            "spent": dict(self.spent),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Counts:
        """Return the counts that `to_json` wrote; missing fields are 0."""
        return cls(
            completed=int(plain.get("completed", 0)),
            failed=int(plain.get("failed", 0)),
            skipped=int(plain.get("skipped", 0)),
            duplicates=int(plain.get("duplicates", 0)),
            reused=int(plain.get("reused", 0)),
            calls=dict(plain.get("calls", {})),
            calls_reused=dict(plain.get("calls_reused", {})),
            spent=dict(plain.get("spent", {})),
        )

    @classmethod
    def total_of(cls, parts: Iterable[Counts]) -> Counts:
        """Return the sum over partitions."""
        total = cls()
        for part in parts:
            total = cls(
                completed=total.completed + part.completed,
                failed=total.failed + part.failed,
                skipped=total.skipped + part.skipped,
                duplicates=total.duplicates + part.duplicates,
                reused=total.reused + part.reused,
                calls=_sum(total.calls, part.calls),
                calls_reused=_sum(total.calls_reused, part.calls_reused),
                spent=_sum(total.spent, part.spent),
            )
        return total


def _sum(left: Tally, right: Tally) -> Tally:
    if not right:
        return left
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total
