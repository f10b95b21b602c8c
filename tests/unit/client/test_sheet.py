"""What was reported as written must be visible in the sheet (S4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from rowmill.client import sheet as sheets
from rowmill.client.sheet import SheetBehind, SheetView
from rowmill.settings import Settings
from rowmill.streams.core.accounting import Counts
from rowmill.streams.ports import SheetUnusable, Source
from rowmill.topics.contracts import PlayReference, RunOptions, RunRecord

RECORD = RunRecord(
    run="r", life=1, claim="c", instance="i", pid=1, state="open", started_at_ms=0,
    updated_at_ms=0, dataset="d", play=PlayReference(name="p", digest="x"), options=RunOptions(),
)  # fmt: skip


class FakeSheet:
    """A sheet whose `next` moves on at every look."""

    looks: ClassVar[list[dict[int, int]]] = []
    held: ClassVar[dict[str, int]] = {}
    newest: ClassVar[str] = "r"
    sources: ClassVar[list[Source]] = []

    def __init__(self, _url: str) -> None:
        if not self.looks:
            raise SheetUnusable("no file yet")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def next_offsets(self, source: Source) -> dict[int, int]:
        self.sources.append(source)
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def counts(self, _dataset: str, _run: str) -> dict[str, int]:
        return self.held

    def runs(self, _dataset: str) -> list[str]:
        return [self.newest]


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SheetView:
    async def ends(*_: Any) -> dict[int, int]:
        return {0: 5, 1: 0, 2: 7}

    async def cluster(*_: Any) -> str:
        return "abc"

    monkeypatch.setattr(sheets, "end_offsets", ends)
    monkeypatch.setattr(sheets, "cluster_id", cluster)
    monkeypatch.setattr(sheets, "SheetReader", FakeSheet)
    monkeypatch.setattr(sheets, "TRY_EVERY_S", 0)
    monkeypatch.setattr(sheets, "PATIENT_EVERY_S", 0.001)
    monkeypatch.setattr(sheets, "PATIENT_S", 0.01)
    FakeSheet.looks, FakeSheet.held, FakeSheet.newest = [], {"completed": 12}, "r"
    return SheetView(Settings(home=tmp_path, topic_prefix="t."), RECORD)


@pytest.mark.behaviour("S4")
async def test_the_sheet_is_waited_for_until_it_holds_every_record(view: SheetView) -> None:
    FakeSheet.looks = [{}, {0: 5}, {0: 5, 2: 6}, {0: 5, 2: 7}]
    behind: list[int] = []
    await view.shows_everything(Counts(completed=12), behind.append)
    assert behind == [12, 7, 1]
    assert FakeSheet.sources[-1] == Source("t.rowmill-sink@abc", "t.rows.completed")


async def test_a_sheet_that_stays_behind_is_an_error_that_says_nothing_is_lost(
    view: SheetView,
) -> None:
    FakeSheet.looks = [{0: 5, 2: 3}]
    with pytest.raises(SheetBehind, match=r"4 records behind.*safe in Kafka.*rowmill runs show r"):
        await view.shows_everything(Counts(completed=12), lambda _records: None)


async def test_a_sheet_that_is_not_there_yet_is_one_that_is_behind(view: SheetView) -> None:
    with pytest.raises(SheetBehind, match="12 records behind"):
        await view.shows_everything(Counts(completed=12), lambda _records: None)


async def test_counts_that_differ_are_told_both(view: SheetView) -> None:
    FakeSheet.looks = [{0: 5, 2: 7}]
    FakeSheet.held = {"completed": 11}
    with pytest.raises(SheetBehind, match="shows 11 completed, reported were 12 completed"):
        await view.shows_everything(Counts(completed=12), lambda _records: None)


async def test_rows_that_a_newer_run_has_taken_over_are_not_missed(view: SheetView) -> None:
    FakeSheet.looks = [{0: 5, 2: 7}]
    FakeSheet.held, FakeSheet.newest = {"completed": 3}, "newer"
    await view.shows_everything(Counts(completed=12), lambda _records: None)


async def test_a_stopped_runs_sheet_may_be_ahead_of_its_counts_and_not_behind(
    view: SheetView,
) -> None:
    FakeSheet.looks = [{0: 5, 2: 7}]
    FakeSheet.held = {"completed": 15}
    await view.shows_everything(Counts(completed=12), lambda _records: None, growing=True)
    FakeSheet.looks = [{0: 5, 2: 7}]
    FakeSheet.held = {"completed": 11}
    with pytest.raises(SheetBehind):
        await view.shows_everything(Counts(completed=12), lambda _records: None, growing=True)
