"""The JSON line of one measured run. docs/benchmarks.md says what each figure means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.provider import ProviderCounts

PROVIDER = "provider"
ROLES = ("rows", "dispatch", "sink", "broker", "submit", "supervisor")
"""Whose CPU and memory count. Only the provider and the measuring process do not."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill -9 of all workers. `rows`: in the sheet just after it; `progress_s`: from the kill to
    the next row in the sheet, None where none came."""

    rows: int
    progress_s: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was seen of one run. CPU in seconds, by role, the provider among them."""

    rows: int
    rows_seen: int
    rows_lost: int
    wall_s: float
    cpu_s: Mapping[str, float]
    other_cpu_s: float
    peak_kb: int
    provider: ProviderCounts
    load1_before: float
    concurrency: int
    workers: int
    kill_asked: bool = False
    kill: Kill | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the line as an object. Field names are those of the comparison that reads it."""
        cpu_s = {role: self.cpu_s.get(role, 0.0) for role in ROLES}
        line: dict[str, Any] = {
            "peer": "rowmill",
            "rows": self.rows,
            "wall_s": round(self.wall_s, 2),
            "rows_per_s": round(self.rows_seen / self.wall_s, 1),
            "cpu_s_per_1000_rows": round(sum(cpu_s.values()) / self.rows * 1000, 3),
            "peak_rss_mb": round(self.peak_kb / 1024),
            "calls": self.provider.calls,
            "repeated_calls": self.provider.repeated,
            "lost_rows": self.rows_lost,
            "cpu_by_role_s": {role: round(cpu_s[role], 2) for role in sorted(ROLES)},
            "cpu_ms_per_row_by_role": {
                role: round(cpu_s[role] / self.rows * 1000, 3) for role in ROLES
            },
            "provider_cpu_s": round(self.cpu_s.get(PROVIDER, 0.0), 2),
            "provider_max_in_flight": self.provider.in_flight_max,
            "load_other_cpu_s": round(self.other_cpu_s, 2),
            "load1_before": round(self.load1_before, 2),
            "concurrency": self.concurrency,
            "workers": self.workers,
        }
        if self.rows_seen < self.rows:
            line["timed_out"] = True
        if self.kill is not None:
            line["kill"] = {
                "at_rows": self.kill.rows,
                "progress_s": self.kill.progress_s,
                "repeated_answered": self.provider.repeated_answered,
                "repeated_in_flight": self.provider.repeated - self.provider.repeated_answered,
            }
        elif self.kill_asked:
            line["kill"] = "never reached"
        return {**line, **self.more}
