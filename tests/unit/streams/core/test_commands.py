"""A command asks again once: who gets a number of its own, and which rows run once more."""

from __future__ import annotations

import pytest

from rowmill.streams.core.commands import Command, Force, force_token, next_command, runs_again

FORCED = Command("all", 3)
RETRY = Command("failed", 3)


def test_the_first_command_of_a_run_has_number_zero() -> None:
    assert next_command("all", None) == Command("all", 0)
    assert next_command(None, None) == Command(None, 0)


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("state", ["claiming", "open", "paused", "stopped"])
@pytest.mark.parametrize("held", [FORCED, RETRY, Command()])
def test_a_resume_goes_on_with_the_command_that_was_cut_off(state: str, held: Command) -> None:
    assert next_command(None, held, state) == held


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("state", ["claiming", "open", "paused"])
@pytest.mark.parametrize("held", [FORCED, RETRY])
def test_giving_an_interrupted_command_again_buys_nothing_twice(state: str, held: Command) -> None:
    assert next_command(held.force, held, state) == held


@pytest.mark.parametrize(
    ("wanted", "held", "state", "number"),
    [
        ("failed", RETRY, "finished", 4),
        ("failed", RETRY, "stopped", 4),
        ("failed", FORCED, "paused", 4),
        ("all", Command(), "paused", 1),
        ("all", FORCED, "stopped", 3),
    ],
)
def test_another_wish_is_another_command(
    wanted: Force, held: Command, state: str, number: int
) -> None:
    assert next_command(wanted, held, state) == Command(wanted, number)


@pytest.mark.parametrize(
    ("status", "ended_by", "command", "again"),
    [
        ("failed", 0, Command("failed", 1), True),
        ("failed", 1, Command("failed", 1), False),
        ("failed", 0, Command("all", 1), False),
        ("failed", 0, Command(None, 1), False),
        ("completed", 0, Command("failed", 1), False),
        ("skipped", 0, Command("failed", 1), False),
    ],
)
def test_a_failed_row_runs_once_more_for_each_command_that_retries(
    status: str, ended_by: int, command: Command, again: bool
) -> None:
    assert runs_again(status, ended_by, command) is again


def test_tokens_differ_by_run_and_command() -> None:
    assert len({force_token("a", 0), force_token("a", 1), force_token("b", 0)}) == 3
