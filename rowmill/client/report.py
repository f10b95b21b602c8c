"""The report of a run: the one object that `--json` prints and `await run.done()` returns."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict

from rowmill.streams.core.accounting import Counts
from rowmill.topics.contracts.runs import RunState

SCHEMA = 1
"""Within one schema the object only grows."""

FAILURES_MAX = 10
"""Reasons of failure that a report names; the sheet has all of them."""


class ProviderReport(BaseModel):
    """What one provider did for a run, over all lives."""

    model_config = ConfigDict(frozen=True)

    calls: int = 0
    calls_reused: int = 0
    spent: float = 0


class LifeReport(BaseModel):
    """What this command did. `rows`: rows that ended while it drove the run."""

    model_config = ConfigDict(frozen=True)

    number: int
    calls: int
    rows: int


class Failure(BaseModel):
    """Why `rows` rows failed. `first_index`: place of the first of them in the input, from 0."""

    model_config = ConfigDict(frozen=True)

    error: str
    rows: int
    first_index: int


class RunReport(BaseModel):
    """How a run stands, as `--json` prints it (`schema_` there is `schema`). `reason`: why it stopped.

    completed + failed + skipped + duplicates + pending + cancelled = total."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_: int = SCHEMA
    run_id: str
    dataset: str
    total: int
    completed: int
    failed: int
    skipped: int
    duplicates: int
    pending: int
    cancelled: int
    reused: int
    calls: int
    calls_reused: int
    spent: float
    wall_s: float
    providers: dict[str, ProviderReport]
    life: LifeReport
    sheet: str
    out: str | None
    state: RunState
    reason: str | None = None
    failures: list[Failure] = []
    warnings: list[str] = []

    @property
    def exit_code(self) -> int:
        """0 where every row ended well; 1 where one failed, waits or was cancelled."""
        return 1 if self.failed or self.pending or self.cancelled else 0

    def to_json(self) -> str:
        """Return the object of `--json`, on one line."""
        plain = self.model_dump(mode="json")
        return json.dumps({"schema": plain.pop("schema_"), **plain}, ensure_ascii=False)


def provider_reports(counts: Counts) -> dict[str, ProviderReport]:
    """Return what each provider did, by id in alphabetical order."""
    ids = sorted({*counts.calls, *counts.calls_reused, *counts.spent})
    return {
        id_: ProviderReport(
            calls=int(counts.calls.get(id_, 0)),
            calls_reused=int(counts.calls_reused.get(id_, 0)),
            spent=money(counts.spent.get(id_, 0)),
        )
        for id_ in ids
    }


def money(amount: float) -> float:
    """Return an amount without the dust of adding floats; 6 digits are below any price."""
    return round(amount, 6)


def report(
    *,
    run_id: str,
    dataset: str,
    state: RunState,
    reason: str | None = None,
    total: int,
    counts: Counts,
    before: Counts,
    retried: int = 0,
    life: int,
    wall_s: float,
    sheet: str,
    failures: list[Failure],
) -> RunReport:
    """Add up a run.

    Args: `counts`: the run's, over all lives; `before`: what they were when this life began;
    `retried`: failed rows that ended once more in this life;
    `total` >= counts.ended: rows of the input. Raises: ValueError where more rows ended than exist.
    """
    pending = total - counts.ended
    if pending < 0:
        raise ValueError(f"run {run_id}: {counts.ended} rows ended of {total}")
    calls = int(sum(counts.calls.values()))
    return RunReport(
        run_id=run_id,
        dataset=dataset,
        total=total,
        completed=counts.completed,
        failed=counts.failed,
        skipped=counts.skipped,
        duplicates=counts.duplicates,
        pending=pending,
        cancelled=0,
        reused=counts.reused,
        calls=calls,
        calls_reused=int(sum(counts.calls_reused.values())),
        spent=money(sum(counts.spent.values())),
        wall_s=round(wall_s, 3),
        providers=provider_reports(counts),
        life=LifeReport(
            number=life,
            calls=calls - int(sum(before.calls.values())),
            rows=counts.ended - before.ended + retried,
        ),
        sheet=sheet,
        out=None,
        state=state,
        reason=reason if state in ("paused", "stopped") else None,
        failures=failures,
    )
