"""The report is read by somebody who knows nothing of the run."""

from __future__ import annotations

from pathlib import Path

from tests.history.finals import Finals
from tests.unit.history.scenes import Scene
from tests.unit.history.scenes_of_paying import one_call_answered, two_owners_send_at_once
from tests.unit.history.scenes_of_rows import a_row_that_is_not_in_the_sheet

WHOLE = Path(__file__).with_name("report.txt")


def test_a_report_says_what_was_promised_and_which_events_prove_that_it_is_broken() -> None:
    """Every line: the promise, the key, the events in order, and what was not looked at."""
    scene = Scene(finals=Finals(canaries=[]))
    two_owners_send_at_once(scene)
    assert f"{scene.report()}\n" == WHOLE.read_text(encoding="utf-8")


def test_a_report_of_nothing_broken_says_what_was_looked_at() -> None:
    """A run that looked at nothing must not read like one that passed."""
    scene = Scene()
    one_call_answered(scene)
    lines = str(scene.report()).splitlines()
    assert lines[0] == "11 promises over 10 events: none is found broken."
    assert "  INV4: not looked at: sheet, twin" in lines


def test_many_violations_of_one_promise_are_counted_and_three_are_shown() -> None:
    """The tenth says nothing that the first did not."""
    scene = Scene()
    a_row_that_is_not_in_the_sheet(scene)
    scene.finals.sheet = []
    scene.finals.input_rows = [(f"row-{number}", {}) for number in range(10)]
    text = str(scene.report())
    assert text.count("fed, and not in the sheet") == 3
    assert "and 7 more times, for 10 in all" in text
