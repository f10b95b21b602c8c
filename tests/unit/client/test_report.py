"""The report adds up, over partitions and lives."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.client.report import RunReport, report
from rowmill.streams.core.accounting import Counts
from rowmill.topics.contracts.runs import RunState

NAMES = ("completed", "failed", "skipped", "duplicates", "pending", "cancelled")


def made(counts: Counts, total: int, before: Counts | None = None, life: int = 1) -> RunReport:
    state: RunState = "finished" if counts.ended == total else "stopped"
    return report(
        run_id="r", dataset="d", state=state, total=total, counts=counts,
        before=before or Counts(), life=life, wall_s=1.23456, sheet="s", failures=[],
    )  # fmt: skip


rows = st.integers(0, 1_000)


@given(completed=rows, failed=rows, skipped=rows, duplicates=rows, pending=rows)
def test_the_counts_add_up_to_the_total(
    completed: int, failed: int, skipped: int, duplicates: int, pending: int
) -> None:
    counts = Counts(completed, failed, skipped, duplicates)
    found = made(counts, counts.ended + pending)
    assert sum(getattr(found, name) for name in NAMES) == found.total
    assert found.exit_code == (1 if failed or pending else 0)


def test_more_endings_than_rows_are_an_error_not_a_negative_count() -> None:
    with pytest.raises(ValueError, match="3 rows ended of 2"):
        made(Counts(completed=3), 2)


def test_a_life_reports_what_it_did_itself() -> None:
    before = Counts(completed=200, calls={"p": 400})
    counts = Counts(completed=500, failed=3, calls={"p": 900, "q": 5}, calls_reused={"p": 7})
    found = made(counts, 503, before, life=2)
    assert (found.life.number, found.life.rows, found.life.calls) == (2, 303, 505)
    assert (found.calls, found.calls_reused) == (905, 7)
    assert found.providers["q"].calls == 5


def test_rows_that_ran_again_count_as_this_lifes_work() -> None:
    before, counts = Counts(completed=1, failed=2), Counts(completed=2, failed=1)
    found = report(
        run_id="r", dataset="d", state="finished", total=3, counts=counts, before=before, retried=2,
        life=2, wall_s=1, sheet="s", failures=[],
    )  # fmt: skip
    assert (found.life.rows, found.pending) == (2, 0)


def test_the_json_object_has_the_agreed_fields() -> None:
    counts = Counts(completed=2, reused=1, calls={"p": 1}, spent={"p": 0.1 + 0.2})
    plain = json.loads(made(counts, 2).to_json())
    assert plain == {
        "schema": 1, "run_id": "r", "dataset": "d", "total": 2, "completed": 2, "failed": 0,
        "skipped": 0, "duplicates": 0, "pending": 0, "cancelled": 0, "reused": 1, "calls": 1,
        "calls_reused": 0, "spent": 0.3, "wall_s": 1.235,
        "providers": {"p": {"calls": 1, "calls_reused": 0, "spent": 0.3}},
        "life": {"number": 1, "calls": 1, "rows": 2},
        "sheet": "s", "out": None, "state": "finished", "reason": None,
        "failures": [], "warnings": [],
    }  # fmt: skip
    assert "\n" not in made(counts, 2).to_json()
