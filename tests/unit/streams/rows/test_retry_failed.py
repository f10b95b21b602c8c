"""A run's failed rows run once more for each command that retries them, and count once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rowmill.topics.contracts import CallError, RunOptions
from tests.kit.fake_engine import FakeDelivery, settle
from tests.unit.streams.rows.role import Role

REFUSED = CallError(kind="permanent", message="unknown", status_code=404)


@pytest.fixture
def role(tmp_path: Path) -> Role:
    return Role(tmp_path)


def retry(role: Role, life: int, command: int = 1) -> None:
    options = RunOptions(force="failed", command=command)
    role.tell_run(life=life, state="open", offset=life, options=options)


async def fail(role: Role, id_: str, index: int, life: int = 1) -> FakeDelivery:
    """Feed a row whose second call fails: its resolver raises, the row ends as failed."""
    delivery = role.feed(id_, index, life=life)
    await settle()
    role.answer({"name": id_}, life=life)
    await settle()
    role.answer(None, status="failed", error=REFUSED, life=life)
    await settle()
    return delivery


@pytest.mark.behaviour("D3")
async def test_only_failed_rows_run_again_and_the_counts_are_put_right(role: Role) -> None:
    await role.complete("MMM", 0)
    await fail(role, "AOS", 1)
    assert role.counts() == {"completed": 1, "failed": 1, "calls": {"p": 4}}
    retry(role, life=2)
    done, again = role.feed("MMM", 0, life=2), role.feed("AOS", 1, life=2)
    await settle()
    assert done.acked
    assert not again.acked
    assert role.requests[-1].force == "failed"
    assert role.requests[-1].force_token == "run:1"
    role.answer({"name": "AOS"}, life=2, reused=True, sends=0)
    await settle()
    role.answer({"domain": "AOS.test"}, life=2)
    await settle()
    assert role.counts() == {
        "completed": 2, "calls": {"p": 5}, "calls_reused": {"p": 1},
    }  # fmt: skip
    assert role.completed[-1].life == 2
    assert again.acked


async def test_a_replay_of_the_same_command_does_not_run_a_row_a_third_time(role: Role) -> None:
    await fail(role, "AOS", 0)
    retry(role, life=2)
    await fail(role, "AOS", 0, life=2)
    asked = len(role.requests)
    retry(role, life=3)
    replayed = role.feed("AOS", 0, life=3)
    await settle()
    assert replayed.acked
    assert len(role.requests) == asked
    assert role.counts()["failed"] == 1
    retry(role, life=4, command=2)
    role.feed("AOS", 0, life=4)
    await settle()
    assert len(role.requests) == asked + 1, "a new command runs it once more"


async def test_duplicates_of_a_failed_row_stay_duplicates(role: Role) -> None:
    await fail(role, "AOS", 0)
    role.feed("AOS", 1)
    await settle()
    retry(role, life=2)
    duplicate = role.feed("AOS", 1, life=2)
    await settle()
    assert duplicate.acked
    assert role.counts()["duplicates"] == 1
    assert role.counts()["failed"] == 1


async def test_a_row_of_the_old_command_ends_before_the_new_one_runs_it_again(role: Role) -> None:
    first = role.feed("AOS", 0)
    await settle()
    retry(role, life=2)
    again = role.feed("AOS", 0, life=2)
    await settle()
    assert role.open.works_on(again)  # type: ignore[arg-type]
    role.answer({"name": "AOS"})
    await settle()
    role.answer(None, status="failed", error=REFUSED)
    await settle()
    assert first.acked
    assert not again.acked
    assert len(role.requests) == 3, "it was admitted again"
    role.answer({"name": "AOS"}, life=2)
    await settle()
    role.answer({"domain": "x"}, life=2)
    await settle()
    assert again.acked
    assert role.counts()["completed"] == 1
    assert "failed" not in role.counts()


async def test_a_late_answer_of_the_former_life_does_not_end_the_retry(role: Role) -> None:
    await fail(role, "AOS", 0)
    retry(role, life=2)
    role.feed("AOS", 0, life=2)
    await settle()
    role.answer(None, status="failed", error=REFUSED, life=1)
    await settle()
    assert len(role.completed) == 1
    role.answer({"name": "AOS"}, life=2)
    await settle()
    assert role.requests[-1].tool == "p.domain"


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize(("options", "force", "token"), [
    (RunOptions(), None, None),
    (RunOptions(force="all"), "all", "run:0"),
    (RunOptions(force="all", command=4), "all", "run:4"),
])  # fmt: skip
async def test_calls_that_name_no_force_use_the_commands(
    role: Role, options: RunOptions, force: Any, token: Any
) -> None:
    role.tell_run(state="open", offset=1, options=options)
    role.feed("MMM", 0)
    await settle()
    assert (role.requests[-1].force, role.requests[-1].force_token) == (force, token)
    assert role.requests[-1].command == options.command
