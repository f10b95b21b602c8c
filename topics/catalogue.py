"""The topics: name, key, partitions, retention, cleanup, what flows. The one list of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TopicDefinition:
    """One topic. `partitions` None: the setting `partitions` (all data topics agree)."""

    name: str
    key: str
    flows: str
    partitions: int | None = None
    retention_ms: int | None = None
    cleanup: Literal["delete", "compact"] = "delete"
    config: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """Return the broker's topic configuration."""
        config = {"cleanup.policy": self.cleanup, **self.config}
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        if self.cleanup == "compact":
            # A late record of a cut-off former owner must not survive its successor's (point 3 of
            # the architecture): compaction waits longer than an owner reads its changelog back.
            config.setdefault("min.compaction.lag.ms", str(DAY_MS))
        return config


ROWS_INPUT = TopicDefinition(
    "rows.input", "row id", "input rows, one record a row", retention_ms=30 * DAY_MS
)
TOOL_REQUESTS = TopicDefinition(
    "tool.requests",
    "receipt key",
    "questions, to the partition that owns the receipt",
    retention_ms=7 * DAY_MS,
)
PROVIDER_RESULTS = TopicDefinition(
    "provider.results", "row id", "answers, to the partition that asked", retention_ms=7 * DAY_MS
)
ROWS_COMPLETED = TopicDefinition(
    "rows.completed", "row id", "finished rows and patches of open ones", retention_ms=30 * DAY_MS
)
RUNS = TopicDefinition(
    "runs",
    "run id",
    "what a run is: life, play, tools, sealed, paused, stopped",
    partitions=1,
    cleanup="compact",
)
LANES = TopicDefinition("lanes", "tool id", "where receipts live", partitions=1, cleanup="compact")
RUNS_EVENTS = TopicDefinition(
    "runs.events",
    "run id",
    "dataset started, progress, completed, failed",
    retention_ms=30 * DAY_MS,
)
DEAD_LETTER = TopicDefinition(
    "rows.dead-letter",
    "topic/partition/offset",
    "records that nobody could read, with the reason",
    retention_ms=30 * DAY_MS,
)

CATALOGUE: tuple[TopicDefinition, ...] = (
    ROWS_INPUT,
    TOOL_REQUESTS,
    PROVIDER_RESULTS,
    ROWS_COMPLETED,
    RUNS,
    LANES,
    RUNS_EVENTS,
    DEAD_LETTER,
)
"""Every topic but the tables' changelogs (see `changelog`)."""


def changelog(role: str, table: str) -> TopicDefinition:
    """Return the changelog topic of a role's table, named as Faust names it."""
    return TopicDefinition(
        f"rowmill-{role}-{table}-changelog",
        "table key",
        f"changelog of {role}'s table {table}",
        cleanup="compact",
    )


ROWS_CHANGELOG = changelog("rows", "rows")
RECEIPTS_CHANGELOG = changelog("dispatch", "receipts")
PACING_CHANGELOG = changelog("dispatch", "pacing")
LIMITS_CHANGELOG = changelog("dispatch", "limits")
CHANGELOGS = (ROWS_CHANGELOG, RECEIPTS_CHANGELOG, PACING_CHANGELOG, LIMITS_CHANGELOG)
