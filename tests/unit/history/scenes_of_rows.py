"""Scenes of rows: each once, totals, endings, the calm twin, cells, columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.history.finals import Finals, SheetRow, TopicRecord
from tests.unit.history.scenes import Scene, breaks, innocent

ROW_A = SheetRow("a", 0, "completed", None, {"first": "A", "second": "AA"})
ROW_B = SheetRow("b", 1, "completed", None, {"first": "B", "second": "BB"})


def _cell_of(values: dict[str, Any], column: str) -> str:
    letter = str(values["id"]).upper()
    return letter if column == "first" else letter * 2


def _finals() -> Finals:
    report = {"run_id": "x", "state": "finished", "total": 3, "completed": 2, "failed": 0}
    report |= {"skipped": 0, "duplicates": 1, "pending": 0, "cancelled": 0}
    return Finals(
        input_rows=[("a", {"id": "a"}), ("b", {"id": "b"}), ("a", {"id": "a"})],
        sheet=[ROW_A, ROW_B],
        twin=[ROW_A, ROW_B],
        report=report,
        columns=["first", "second"],
        cell_of=_cell_of,
    )


@innocent
def a_run_that_ended_well(scene: Scene) -> None:
    scene.finals = _finals()
    scene.feed(0)
    scene.feed(1, "b", 1, 1)
    told = {"run": "x", "row": "a"}
    scene.note(2, "rows-1", "admitted", **told, index=0, partition=0)
    for number, column in enumerate(("first", "second")):
        asked = {"column": column, "call": f"{column}/0", "receipt": f"r{number}", "asked": 0}
        scene.note(3 + number * 10, "rows-1", "asked", **told, **asked)
        scene.note(10 + number * 10, "rows-1", "cell", **told, column=column, status="completed")
    scene.end_row(30)


@breaks("INV1", "row b")
def a_row_that_is_not_in_the_sheet(scene: Scene) -> None:
    a_run_that_ended_well(scene)
    scene.finals.sheet = [ROW_A]


@breaks("INV1", "row a")
def a_row_that_is_twice_in_the_sheet(scene: Scene) -> None:
    a_run_that_ended_well(scene)
    scene.finals.sheet = [ROW_A, ROW_B, ROW_A]


@breaks("INV1", "row c")
def a_row_that_nobody_fed(scene: Scene) -> None:
    a_run_that_ended_well(scene)
    scene.finals.sheet = [ROW_A, ROW_B, replace(ROW_A, row="c")]


@breaks("INV2", "run x")
def counts_that_do_not_add_up(scene: Scene) -> None:
    scene.finals = _finals()
    scene.finals.report = {**_finals().report, "duplicates": 0}  # type: ignore[dict-item]  # not None


@breaks("INV2", "run x")
def counts_that_are_not_the_sheets(scene: Scene) -> None:
    scene.finals = _finals()
    scene.finals.sheet = [ROW_A, replace(ROW_B, status="failed")]


@breaks("INV2", "run x")
def an_event_that_counts_more_than_all(scene: Scene) -> None:
    scene.finals = _finals()
    counts = {"completed": 3, "duplicates": 1}
    value = {"run": "x", "kind": "progress", "counts": counts}
    scene.finals.topics = {"runs.events": [TopicRecord(0, 4, "x", value)]}


@breaks("INV3", "row a of run x")
def published_again_after_its_ending(scene: Scene) -> None:
    scene.start("rows-1")
    scene.end_row(0)
    scene.note(100, "runner-1", "killed", target="rows-1")
    scene.start("rows-2", 11_000, epoch=2)
    scene.end_row(11_100, "rows-2", epoch=2, status="failed", offset=1)


@innocent
def killed_between_publishing_and_entering(scene: Scene) -> None:
    scene.start("rows-1")
    told = {"run": "x", "row": "a", "index": 0, "status": "completed", "epoch": 1}
    scene.note(0, "rows-1", "published", **told, partition=0, offset=0)
    scene.note(1, "runner-1", "killed", target="rows-1")
    scene.start("rows-2", 11_000, epoch=2)
    scene.end_row(11_100, "rows-2", epoch=2, offset=1)


@innocent
def a_failed_row_runs_again_by_command(scene: Scene) -> None:
    scene.start("rows-1")
    scene.end_row(0, status="failed")
    scene.end_row(50, offset=1)


@breaks("INV4", "row b")
def a_fault_that_left_a_row_failed(scene: Scene) -> None:
    scene.finals = _finals()
    scene.finals.sheet = [ROW_A, replace(ROW_B, status="failed", error="transient")]


@breaks("INV4", "row b")
def a_fault_that_changed_a_cell(scene: Scene) -> None:
    scene.finals = _finals()
    scene.finals.sheet = [ROW_A, replace(ROW_B, cells={"first": "B", "second": "BA"})]


def _unkeyed_call_failed(scene: Scene, *, idempotent: bool) -> None:
    scene.finals = _finals()
    cells = {"first": "B", "second": None}
    scene.finals.sheet = [ROW_A, replace(ROW_B, cells=cells)]
    scene.feed(0)
    scene.feed(1, "b", 1, 1)
    told = {"run": "x", "row": "b"}
    scene.note(2, "rows-1", "admitted", **told, index=1, partition=0)
    scene.note(3, "rows-1", "cell", **told, column="first", status="completed")
    asked = {"column": "second", "call": "second/0", "receipt": "r1", "asked": 0}
    scene.note(4, "rows-1", "asked", **told, **asked)
    scene.send(10, idempotent=idempotent)
    scene.hear(20, outcome="transient", status=500)
    scene.note(30, "rows-1", "cell", **told, column="second", status="failed")


@innocent
def an_outcome_that_nobody_can_know(scene: Scene) -> None:
    _unkeyed_call_failed(scene, idempotent=False)


@breaks("INV4", "row b")
def a_keyed_call_that_a_fault_left_failed(scene: Scene) -> None:
    _unkeyed_call_failed(scene, idempotent=True)


@breaks("INV5", "row b")
def a_cell_with_another_rows_answer(scene: Scene) -> None:
    scene.finals = _finals()
    scene.finals.sheet = [ROW_A, replace(ROW_B, cells={"first": "A", "second": "BB"})]


@breaks("INV5", "row b")
def a_completed_row_without_a_cell(scene: Scene) -> None:
    scene.finals = _finals()
    scene.finals.sheet = [ROW_A, replace(ROW_B, cells={"first": "B"})]


@breaks("INV6", "row a of run x")
def asked_before_the_column_before_it(scene: Scene) -> None:
    scene.finals = Finals(columns=["first", "second"])
    told = {"run": "x", "row": "a"}
    scene.note(2, "rows-1", "admitted", **told, index=0, partition=0)
    scene.note(3, "rows-1", "asked", **told, column="second", call="second/0", receipt="r", asked=0)


@breaks("INV6", "row a of run x")
def settled_in_another_order(scene: Scene) -> None:
    scene.finals = Finals(columns=["first", "second"])
    told = {"run": "x", "row": "a"}
    scene.note(2, "rows-1", "admitted", **told, index=0, partition=0)
    scene.note(3, "rows-1", "cell", **told, column="second", status="completed")


@innocent
def a_row_that_begins_again_from_its_first_column(scene: Scene) -> None:
    scene.finals = Finals(columns=["first", "second"])
    told = {"run": "x", "row": "a"}
    for at_ms in (2, 102):
        scene.note(at_ms, "rows-1", "admitted", **told, index=0, partition=0)
        scene.note(at_ms + 1, "rows-1", "cell", **told, column="first", status="completed")
