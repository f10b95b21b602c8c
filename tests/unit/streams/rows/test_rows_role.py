"""The rows role without Kafka: what a row becomes, in which order it is made durable, and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from rowmill.topics import codec
from rowmill.topics.contracts import (
    CallError,
    PlayReference,
    RowInput,
    RunOptions,
    RunRecord,
)
from tests.kit.fake_engine import delivered, settle
from tests.unit.streams.rows.role import PURE, Role


@pytest.fixture
def role(tmp_path: Path) -> Role:
    return Role(tmp_path)


@pytest.mark.behaviour("D1")
async def test_columns_run_in_order_and_each_sees_those_before_it(role: Role) -> None:
    delivery = await role.complete("MMM", 0)
    (row,) = role.completed
    assert row.status == "completed"
    assert {name: cell["value"] for name, cell in row.cells.items()} == {
        "company": {"name": "MMM"}, "domain": {"domain": "MMM.test"}, "label": "MMM: MMM.test",
    }  # fmt: skip
    assert [asked.input for asked in role.requests] == [{"symbol": "MMM"}, {"company": "MMM"}]
    assert delivery.acked
    assert role.counts() == {"completed": 1, "calls": {"p": 2}}


@pytest.mark.behaviour("S2")
async def test_the_row_is_acknowledged_before_its_entry_and_the_entry_before_its_input(
    role: Role,
) -> None:
    delivery = role.feed("MMM", 0)
    await settle()
    role.answer({"name": "MMM"})
    await settle()
    role.app.hold = True
    role.answer({"domain": "x"})
    await settle()
    assert len(role.completed) == 1
    assert role.table.writes == [], "rows.completed is not acknowledged"
    role.app.release()
    role.app.hold = True
    await settle()
    assert len(role.table.writes) == 1
    assert not delivery.acked, "the entry is not acknowledged"
    role.app.release()
    await settle()
    assert delivery.acked


@pytest.mark.behaviour("D3")
async def test_a_failed_call_fails_its_cell_or_its_row_as_the_column_says(role: Role) -> None:
    role.feed("MMM", 0)
    await settle()
    error = CallError(kind="permanent", message="unknown symbol", status_code=422)
    role.answer(None, status="failed", error=error)
    await settle()
    (row,) = role.completed
    assert row.status == "failed", "label can't be made of a skipped domain"
    assert row.failed_column == "label"
    assert row.cells["company"]["status"] == "failed"
    assert row.cells["company"]["error"] == "p.company: 422 permanent: unknown symbol"
    assert row.cells["domain"]["status"] == "skipped"
    assert "_draft" not in row.cells
    assert role.counts() == {"failed": 1, "calls": {"p": 1}}


async def test_a_row_that_does_not_qualify_is_skipped_and_counted(role: Role) -> None:
    delivery = role.feed("unwanted", 0)
    await settle()
    assert role.completed[0].status == "skipped"
    assert role.requests == []
    assert role.counts() == {"skipped": 1}
    assert delivery.acked


async def test_a_row_refused_at_load_fails_with_its_reason_and_no_call(role: Role) -> None:
    role.feed("MMM", 0, refused="line 7: 5 cells, 4 headers")
    await settle()
    assert (role.completed[0].status, role.completed[0].error) == (
        "failed", "line 7: 5 cells, 4 headers",
    )  # fmt: skip
    assert role.requests == []


@pytest.mark.behaviour("I3")
async def test_the_first_of_two_equal_keys_wins_and_the_other_counts_once(role: Role) -> None:
    first = role.feed("MMM", 0)
    second = role.feed("MMM", 1)
    await settle()
    assert second.acked
    assert not first.acked
    await role.complete("MMM", 0)
    third, again = role.feed("MMM", 2), role.feed("MMM", 1)
    await settle()
    assert third.acked
    assert again.acked
    assert role.counts()["duplicates"] == 2
    assert role.counts()["completed"] == 1
    assert len(role.completed) == 1


@pytest.mark.behaviour("I3")
async def test_a_redelivered_row_is_no_duplicate(role: Role) -> None:
    await role.complete("MMM", 0)
    again = role.feed("MMM", 0)
    await settle()
    assert again.acked
    assert role.counts() == {"completed": 1, "calls": {"p": 2}}
    assert len(role.completed) == 1


async def test_a_replayed_row_asks_the_same_questions_under_the_same_names(role: Role) -> None:
    role.feed("MMM", 0)
    await settle()
    role.open.lost({0})
    role.intake.lost({0})
    await settle()
    assert len(role.asks) == 0
    await role.complete("MMM", 0)
    first, replayed = role.requests[0], role.requests[1]
    assert (first.call, first.receipt) == (replayed.call, replayed.receipt)
    assert role.counts()["completed"] == 1


@pytest.mark.behaviour("D2")
async def test_waiting_rows_hold_no_call_and_pause_their_partition(tmp_path: Path) -> None:
    role = Role(tmp_path, read_ahead_bytes=20_000)
    role.tell_run(state="open", options=RunOptions(concurrency=2), offset=1)
    for index in range(20):
        role.feed(f"S{index}", index)
    await settle()
    assert len(role.requests) == 2
    assert role.app.paused == {0}
    role.tell_run(state="open", options=RunOptions(concurrency=50), offset=2)
    await settle()
    assert len(role.requests) == 20
    assert role.app.paused == set()


@pytest.mark.behaviour("M1")
async def test_a_row_whose_columns_are_done_gives_its_slot_away_within_bounds(
    tmp_path: Path,
) -> None:
    role = Role(tmp_path, row_max=2)
    role.app.hold = True
    fed = [role.feed(f"S{index}", index, refused="bad") for index in range(6)]
    await settle()
    assert len(role.completed) == 4, "two wait for their endings without a slot, two hold theirs"
    for _ in fed:
        role.app.release()
        await settle()
    assert len(role.completed) == 6
    assert all(delivery.acked for delivery in fed)
    assert role.admission.open == 0


@pytest.mark.behaviour("D3")
async def test_a_failed_row_that_went_to_another_owner_holds_nothing_back(tmp_path: Path) -> None:
    role = Role(tmp_path)
    role.tell_run(state="open", options=RunOptions(concurrency=1, on_row_error="fail"), offset=1)
    role.app.hold = True
    role.feed("A", 0, refused="bad")
    await settle()
    role.intake.lost({0})
    role.open.lost({0})
    role.intake.ready()
    role.feed("B", 1)
    await settle()
    assert len(role.requests) == 1, "the next owner runs A again, and it may not fail there"


async def test_rows_of_a_life_that_is_not_known_yet_wait_and_those_of_one_that_is_over_go(
    role: Role,
) -> None:
    early = role.feed("NEW", 0, life=2)
    await settle()
    assert role.requests == []
    role.tell_run(life=2, state="claiming", offset=1)
    late = role.feed("OLD", 1, life=1)
    await settle()
    assert late.acked, "life 2 feeds it again"
    assert not early.acked
    role.tell_run(life=2, state="open", offset=2)
    await settle()
    assert len(role.requests) == 1
    waiting = role.feed("AFTER", 2, life=2)
    role.tell_run(life=2, state="paused", offset=3)
    afterwards = role.feed("MORE", 3, life=2)
    await settle()
    assert not waiting.acked, "it was admitted before the pause"
    assert afterwards.acked


@pytest.mark.behaviour("D3")
async def test_fail_fast_admits_nothing_after_the_first_failed_row(tmp_path: Path) -> None:
    role = Role(tmp_path)
    role.tell_run(state="open", options=RunOptions(concurrency=1, on_row_error="fail"), offset=1)
    role.feed("A", 0, refused="bad")
    held = role.feed("B", 1)
    await settle()
    assert role.requests == []
    assert not held.acked


async def test_a_record_without_row_id_is_stamped_and_produced_again(role: Role) -> None:
    record = RowInput(run="run", dataset="d", values={"id": "MMM"})
    delivery = delivered(record, offset=41)
    role.intake.offer(delivery)  # type: ignore[arg-type]
    await settle()
    (stamped,) = role.app.produced["rows.input"]
    assert stamped.row == role.play.dataset.identify({"id": "MMM"}, 0).row
    assert (stamped.index, stamped.record_key) == (41, stamped.row)
    assert delivery.acked
    assert role.requests == []


async def test_a_run_whose_play_is_not_here_waits(role: Role, tmp_path: Path) -> None:
    (tmp_path / "play.py").unlink()
    stranger = PlayReference(name="other", path="/elsewhere/other.py", digest="unknown")
    record = RunRecord(
        run="other", life=1, claim="c", instance="i", pid=1, state="open", started_at_ms=0,
        updated_at_ms=0, dataset="d", play=stranger, options=RunOptions(),
    )  # fmt: skip
    role.runs.apply("other", codec.encode(record), 9)
    role.intake.run_changed(record)
    role.intake.run_changed(record)
    (told,) = role.app.produced["runs.events"]
    assert "no worker has play other (digest unknown)" in told.reason
    row = delivered(RowInput(run="other", dataset="d", row="r", index=0, values={}))
    role.intake.offer(row)  # type: ignore[arg-type]
    await settle()
    assert not row.acked
    assert role.admission.waiting == 1


async def test_a_tool_without_a_name_in_the_play_fails_its_row_with_a_reason(
    tmp_path: Path,
) -> None:
    role = Role(
        tmp_path,
        """
        from rowmill import Dataset, Provider, Tool

        provider = Provider("p", base_url="http://provider.test")
        hidden = {"company": Tool("p.company", provider, post="/company")}

        async def resolve(row, ctx):
            return await ctx.tools.execute(hidden["company"], {"symbol": row["id"]})

        rows = Dataset("d", key="id").with_column("company", resolve)
        """,
    )
    role.feed("MMM", 0)
    await settle()
    (row,) = role.completed
    assert row.status == "failed"
    assert "p.company: permanent: the play has no name for this tool" in row.error
    assert role.requests == []


async def test_questions_wait_for_their_lane_to_be_known(role: Role) -> None:
    lanes, known = dict(role.lanes), role.lanes
    known.clear()
    role.feed("MMM", 0)
    await settle()
    assert role.requests == []
    known.update(lanes)
    role.asks.lane_changed()
    assert len(role.requests) == 1


async def test_a_row_asks_again_for_an_answer_that_never_came(tmp_path: Path) -> None:
    role = Role(tmp_path, ask_again_s=0.01)
    role.feed("MMM", 0)
    for _ in range(200):
        await settle(1)
        if len(role.requests) > 1:
            break
        import asyncio

        await asyncio.sleep(0.002)
    assert [asked.asked for asked in role.requests[:2]] == [0, 1]


@pytest.mark.behaviour("R9")
async def test_an_oversized_row_fails_alone_with_its_size(tmp_path: Path) -> None:
    role = Role(tmp_path, row_bytes_max=1_000)
    role.feed("MMM", 0)
    await settle()
    role.answer({"name": "MMM"})
    await settle()
    role.answer({"domain": "x" * 2_000})
    await settle()
    (row,) = role.completed
    assert row.status == "failed"
    assert row.error.startswith(f'dataset("d").row("{row.row}"): ')
    assert "the limit is 1000" in row.error
    assert row.cells == {}
    assert role.counts() == {"failed": 1, "calls": {"p": 2}}


@pytest.mark.behaviour("D6")
async def test_rows_of_plain_functions_take_no_task(tmp_path: Path) -> None:
    role = Role(tmp_path, PURE)
    good, bad = role.feed("21", 0), role.feed("x", 1)
    await settle()
    assert [row.status for row in role.completed] == ["completed", "failed"]
    assert role.completed[0].cells["twice"]["value"] == 42
    assert "ValueError" in role.completed[1].error
    assert good.acked
    assert bad.acked


async def test_counts_are_found_again_by_the_next_owner(role: Role) -> None:
    await role.complete("MMM", 0)
    role.entries.forget({0})
    await role.complete("AOS", 1)
    assert role.counts() == {"completed": 2, "calls": {"p": 4}}


@pytest.mark.behaviour("Q5")
async def test_a_row_whose_call_is_withheld_waits_for_the_next_life(role: Role) -> None:
    first = role.feed("MMM", 0)
    second = role.feed("AOS", 1)
    await settle()
    reason = CallError(kind="cancelled", message="the limit of 5 calls is reached")
    role.answer(None, status="withheld", error=reason)
    await settle()
    (told,) = role.app.produced["runs.events"]
    assert (told.kind, told.run, told.reason) == ("halted", "run", reason.message)
    assert not second.acked, "whoever owns the partition next must look at it"
    assert role.open.works_on(cast(Any, second))
    third = role.feed("ABT", 2)
    await settle()
    assert len(role.requests) == 2, "no row is admitted any more"
    role.requests.pop()
    role.answer({"name": "3M"}, sends=1)
    await settle()
    role.answer({"domain": "3m.test"})
    await settle()
    assert [row.status for row in role.completed] == ["completed"], "what was sent goes on"
    assert first.acked
    role.tell_run(state="stopped", offset=1)
    assert second.acked
    assert third.acked
    role.tell_run(state="open", life=2, offset=2)
    role.feed("AOS", 1, life=2)
    await settle()
    assert role.requests[-1].life == 2
    assert role.requests[-1].row == told_row(role, "AOS")


def told_row(role: Role, id_: str) -> str:
    return role.play.dataset.identify({"id": id_}, 0).row
