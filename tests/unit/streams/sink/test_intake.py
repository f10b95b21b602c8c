"""Each record goes to its run's sheet, or is set aside with a reason; none is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.sink import intake as intake_module
from rowmill.streams.sink.intake import Intake
from rowmill.topics.contracts import RunRecord
from tests.kit.until import until
from tests.unit.streams.sink.stand_ins import HeldDelivery, delivered, run_record


class OneFlush:
    """Stands in for a sheet's flushing."""

    url = "sqlite:////s.sqlite"
    rows_waiting = 0

    def __init__(self) -> None:
        self.offered: list[HeldDelivery] = []

    def offer(self, delivery: HeldDelivery, write: RowWrite, record: RunRecord) -> None:
        assert write.run == record.run
        self.offered.append(delivery)


class OneSheet:
    """Stands in for `Sheets`: runs that are known have one sheet."""

    def __init__(self) -> None:
        self.runs: dict[str, RunRecord] = {"run-1": run_record()}
        self.flush = OneFlush()

    def of_run(self, run: str) -> tuple[OneFlush, RunRecord] | None:
        record = self.runs.get(run)
        return (self.flush, record) if record else None


class Desk:
    """An intake of partitions 0 and 1, and what it told."""

    def __init__(self) -> None:
        self.paused: set[int] = set()
        self.aside: list[tuple[HeldDelivery, str]] = []
        self.sheets = OneSheet()
        self.intake = Intake(
            pause=self.paused.add,
            resume=self.paused.discard,
            set_aside=lambda delivery, reason: self.aside.append((delivery, reason)),  # type: ignore[arg-type]
            secrets=EnvironmentSecrets({"ROWMILL_SECRET_CANARY": "canary-value"}),
        )
        sheets: Any = self.sheets
        self.intake.connect(sheets)
        self.intake.begin({0: 0, 1: 0})

    def offer(self, *deliveries: Any) -> None:
        for delivery in deliveries:
            self.intake.offer(delivery)

    @property
    def offered(self) -> list[HeldDelivery]:
        return self.sheets.flush.offered


async def test_a_row_goes_to_the_sheet_of_its_run() -> None:
    desk, one = Desk(), delivered("a", 4)
    desk.offer(one)
    assert desk.offered == [one]
    assert desk.intake.positions() == {0: 5, 1: 0}


async def test_an_unreadable_record_is_set_aside_and_the_next_goes_on() -> None:
    desk, bad, good = Desk(), HeldDelivery(0, 0, b"{"), delivered("a", 1)
    desk.offer(bad, good)
    (aside,) = desk.aside
    assert aside[0] is bad
    assert "not JSON" in aside[1]
    assert desk.offered == [good]


async def test_a_row_waits_for_its_runs_record_and_holds_its_partition_only() -> None:
    desk = Desk()
    early, behind = delivered("a", 0, run="run-2"), delivered("b", 1)
    other = delivered("c", 0, partition=1)
    desk.offer(early, behind, other)
    assert desk.offered == [other]
    assert desk.paused == {0}
    assert desk.intake.positions() == {0: 0, 1: 1}
    waiting: Any = early
    assert desk.intake.holds(waiting)
    desk.sheets.runs["run-2"] = run_record("run-2")
    desk.intake.runs_changed()
    assert desk.offered == [other, early, behind]
    assert desk.paused == set()
    assert desk.intake.positions() == {0: 2, 1: 1}


async def test_a_row_of_a_run_that_never_shows_is_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake_module, "RUN_KNOWN_WITHIN_S", 0.02)
    desk = Desk()
    lost, also, good = (
        delivered("a", 0, run="run-2"),
        delivered("b", 1, run="run-3"),
        delivered("c", 2),
    )
    desk.offer(lost, also, good)
    await until(lambda: desk.offered == [good], within_s=5)
    assert [(one.offset, reason.split(",")[0]) for one, reason in desk.aside] == [
        (0, 'no run "run-2" in the topic runs'),
        (1, 'no run "run-3" in the topic runs'),
    ]
    assert desk.paused == set()


async def test_records_of_a_partition_that_left_are_dropped() -> None:
    desk = Desk()
    desk.offer(delivered("a", 0, run="run-2"))
    desk.intake.forget({0})
    desk.offer(delivered("b", 1))
    assert desk.offered == []
    assert desk.intake.positions() == {1: 0}
    assert desk.aside == []


@pytest.mark.behaviour("G3")
async def test_all_partitions_stop_while_any_sheet_has_too_many_rows() -> None:
    desk = Desk()
    first: Any = OneFlush()
    second: Any = OneFlush()
    desk.intake.note_pressure(first, True)
    desk.intake.note_pressure(second, True)
    assert desk.paused == {0, 1}
    desk.intake.note_pressure(first, False)
    assert desk.paused == {0, 1}
    desk.intake.note_pressure(second, False)
    assert desk.paused == set()


async def test_a_partition_that_comes_while_fetching_is_stopped_is_stopped_too() -> None:
    desk = Desk()
    full: Any = OneFlush()
    desk.intake.note_pressure(full, True)
    desk.intake.forget({0})
    desk.paused.clear()  # the engine forgets pauses with each assignment
    desk.intake.begin({0: 0})
    desk.offer(delivered("a", 0))
    assert desk.paused == {0}


@pytest.mark.behaviour("R10")
@pytest.mark.parametrize("shown", ["canary-value", "Y2FuYXJ5LXZhbHVl"])
async def test_a_row_that_carries_a_secret_never_reaches_the_sheet(shown: str) -> None:
    desk, good = Desk(), delivered("a", 1)
    tainted = delivered("b", 0)
    tainted.value = (tainted.value or b"").replace(b'"b"', f'"{shown}"'.encode())
    desk.offer(tainted, good)
    assert [reason for _, reason in desk.aside] == ["it carries the secret CANARY"]
    assert desk.offered == [good]
