"""Which writer of a row wins, and what stands in its cells (S3, INV3, INV18)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rowmill.streams.ports import Sheet
from tests.conformance.sheet.conftest import Driver
from tests.conformance.sheet.writes import cell, patch, row


def outputs(driver: Driver) -> list[tuple[str, dict[str, str | None]]]:
    with driver.reader() as reader:
        return [(found.status, dict(found.outputs)) for found in reader.rows("leads")]


@pytest.mark.behaviour("S3")
@pytest.mark.parametrize("higher", [{"run_number": 2}, {"life": 2}, {"epoch": 2}])
def test_a_higher_writer_replaces_and_a_lower_one_never_wins(
    sheet: Sheet, driver: Driver, higher: dict[str, Any]
) -> None:
    old, new = row("a", cells={"v": "old"}), row("a", cells={"v": "new"}, **higher)
    driver.put(sheet, old)
    assert driver.put(sheet, new).written == 1
    assert driver.put(sheet, old).ignored == 1
    assert outputs(driver) == [("completed", {"v": "new"})]


def test_run_number_decides_before_life_and_life_before_epoch(sheet: Sheet, driver: Driver) -> None:
    writers = list(itertools.product((1, 2), repeat=3))
    for number, life, epoch in (*writers, *reversed(writers)):
        name = f"{number}{life}{epoch}"
        driver.put(sheet, row("a", cells={"v": name}, run_number=number, life=life, epoch=epoch))
    assert outputs(driver) == [("completed", {"v": "222"})]


def test_a_record_that_is_delivered_again_is_harmless(sheet: Sheet, driver: Driver) -> None:
    same = row("a", cells={"v": "x"})
    driver.put(sheet, same, same)
    driver.put(sheet, same)
    assert outputs(driver) == [("completed", {"v": "x"})]
    with driver.reader() as reader:
        assert reader.counts("leads", "run-1") == {"completed": 1}


def test_a_replaced_row_is_replaced_as_a_whole(sheet: Sheet, driver: Driver) -> None:
    driver.put(sheet, row("a", cells={"v": "x", "w": "y"}, error="no", status="failed"))
    driver.put(sheet, row("a", cells={"v": "z"}, run="run-2", run_number=2))
    assert outputs(driver) == [("completed", {"v": "z", "w": None})]
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
        assert (found.error, found.run) == (None, "run-2")
        assert reader.counts("leads", "run-1") == {}
        assert reader.counts("leads", "run-2") == {"completed": 1}


@pytest.mark.behaviour("S3")
def test_a_patch_adds_its_cells_and_touches_no_other(sheet: Sheet, driver: Driver) -> None:
    driver.put(sheet, patch("a", {"v": cell("1", provider="p")}))
    driver.put(sheet, patch("a", {"w": "2"}))
    assert outputs(driver) == [("running", {"v": "1", "w": "2"})]
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
        assert found.values == {"key": "a"}
        assert found.output_cells["v"].provider == "p"
        assert reader.counts("leads", "run-1") == {"running": 1}


def test_a_finished_row_closes_its_patches_in_the_same_chunk_too(
    sheet: Sheet, driver: Driver
) -> None:
    driver.put(
        sheet,
        patch("a", {"v": "draft"}),
        patch("a", {"w": "draft"}),
        row("a", cells={"v": "final"}),
        patch("a", {"v": "late"}),
    )
    assert outputs(driver) == [("completed", {"v": "final", "w": None})]
    with driver.reader() as reader:
        assert reader.counts("leads", "run-1") == {"completed": 1}


@pytest.mark.parametrize("other", [{"run_number": 2, "run": "run-2"}, {"life": 2}])
def test_a_patch_of_another_run_or_life_is_ignored(
    sheet: Sheet, driver: Driver, other: dict[str, Any]
) -> None:
    driver.put(sheet, patch("a", {"v": "1"}))
    assert driver.put(sheet, patch("a", {"v": "2"}, **other)).ignored == 1
    assert outputs(driver) == [("running", {"v": "1"})]


def test_a_patch_of_a_former_owner_is_ignored(sheet: Sheet, driver: Driver) -> None:
    driver.put(sheet, patch("a", {"v": "new"}, epoch=5))
    assert driver.put(sheet, patch("a", {"v": "stale"}, epoch=4)).ignored == 1
    assert outputs(driver) == [("running", {"v": "new"})]


@pytest.mark.behaviour("S3")
def test_a_row_keeps_status_and_error_and_a_cell_what_is_known_of_it(
    sheet: Sheet, driver: Driver
) -> None:
    known = cell("x", provider="p", completed_at_ms=5, reused=True)
    lost = cell(None, status="failed", error="422 unknown name")
    driver.put(
        sheet,
        row(
            "a",
            cells={"v": known, "w": lost, "s": cell(None, status="skipped")},
            status="failed",
            error="w: 422 unknown name",
            failed_column="w",
        ),
    )
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
    assert (found.status, found.error, found.failed_column) == (
        "failed", "w: 422 unknown name", "w",
    )  # fmt: skip
    of = found.output_cells
    assert (of["v"].provider, of["v"].completed_at_ms, of["v"].reused) == ("p", 5, True)
    assert (of["w"].status, of["w"].error) == ("failed", "422 unknown name")
    assert of["s"].status == "skipped"


@pytest.mark.behaviour("D7")
def test_runtime_only_cells_are_not_persisted(sheet: Sheet, driver: Driver) -> None:
    driver.put(sheet, row("a", cells={"_draft": "x", "v": "y"}))
    assert outputs(driver) == [("completed", {"v": "y"})]


def test_columns_that_appear_later_are_added(sheet: Sheet, driver: Driver) -> None:
    sheet.prepare("leads", ["key"], ["v"])
    driver.put(sheet, row("a", cells={"v": "1"}))
    sheet.prepare("leads", ["key", "V"], ["v", "w"])
    driver.put(sheet, row("b", {"key": "b", "V": "in"}, cells={"v": "2", "w": "3"}, index=1))
    with driver.reader() as reader:
        columns = reader.columns("leads")
        first, second = reader.rows("leads")
    assert dict(columns.inputs) == {"key": "key", "V": "V_2"}
    assert dict(columns.outputs) == {"v": "v", "w": "w"}
    assert (first.values["V"], first.outputs["w"]) == (None, None)
    assert (second.values["V"], second.outputs["w"]) == ("in", "3")


def test_prepare_twice_changes_nothing(sheet: Sheet, driver: Driver) -> None:
    sheet.prepare("leads", ["b", "a"], ["v"])
    sheet.prepare("leads", ["a", "b"], ["v"])
    with driver.reader() as reader:
        assert list(reader.columns("leads").inputs) == ["b", "a"]


def test_datasets_have_tables_of_their_own(sheet: Sheet, driver: Driver) -> None:
    names = ["leads", "Leads", "leads!", "sqlite_master", "_rowmill_offsets", "select", "日本"]
    driver.put(sheet, *(row("a", dataset=name) for name in names))
    with driver.reader() as reader:
        assert reader.datasets() == sorted(names)
        assert len({reader.table_name(name).casefold() for name in names}) == len(names)
        for name in names:
            assert [found.values["key"] for found in reader.rows(name)] == ["a"]
