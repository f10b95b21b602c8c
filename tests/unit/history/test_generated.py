"""Generated histories: valid ones pass whole, and one broken event in them is found."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.history.bench import write
from tests.history.checker import INVARIANTS, check
from tests.history.events import Event, History
from tests.history.generator import Generated, generate
from tests.history.hits import proves_nothing
from tests.history.report import Report


@cache
def with_kills() -> Generated:
    """Return one in which kills hit calls that were under way. Not to be changed."""
    return generate(300, rng_seed=1, outage_every_s=1.5)


def checked(generated: Generated, events: list[Event] | None = None) -> Report:
    """Check a generated history, or what became of it."""
    history = History.of(generated.events if events is None else events)
    return check(history, generated.finals, limits=generated.limits)


@pytest.mark.parametrize("rng_seed", range(4))
def test_a_valid_history_with_kills_and_freezes_breaks_nothing(rng_seed: int) -> None:
    """All 25 promises are checked on it, and no alarm is raised."""
    report = checked(generate(300, rng_seed, outage_every_s=1.5))
    assert report.ok, report
    assert len(report.checked) == len(INVARIANTS)


def test_a_generated_history_proves_something() -> None:
    """Its rows end, and a fault hit a call that was under way."""
    generated = with_kills()
    assert proves_nothing(History.of(generated.events), generated.finals) == []


def test_a_history_without_faults_proves_nothing() -> None:
    """It is said, so that a harness whose faults miss does not pass."""
    generated = generate(50, outage_every_s=60)
    assert proves_nothing(History.of(generated.events)) == [
        "no fault hit a call that was under way"
    ]
    assert proves_nothing(History.of(generated.events), has_faults=False) == []


def test_a_history_whose_rows_did_not_end_proves_nothing() -> None:
    """Nothing that did not happen can be wrong."""
    generated = generate(50)
    events = [event for event in generated.events if event["event"] != "entered"]
    events = [event for event in events if event["event"] != "told"]
    (reason, _) = proves_nothing(History.of(events))
    assert reason == "only 0.0% of the rows ended; below 95% a run proves nothing"


@pytest.mark.parametrize(
    ("lost", "code"),
    [
        ("killed", "INV8"),
        ("running", "INV19"),
        ("kept", "INV21"),
        ("done", "INV20"),
        ("published", "INV19"),
        ("entered", "INV26"),
        ("wrote", "INV22"),
    ],
)
def test_one_event_that_is_missing_is_found(lost: str, code: str) -> None:
    """Each kind of event carries weight: without it something can't be proven any more."""
    generated = with_kills()
    events = list(generated.events)
    if lost == "kept":  # said, and never made durable
        broken = dict(next(event for event in events if event["event"] == "kept"))
        events.append({**broken, "receipt": "of nothing"})
    elif lost == "killed":
        events = [event for event in events if event["event"] != "killed"]
        events = [event for event in events if event["event"] != "started"]
    else:
        named = [event for event in events if event["event"] == lost]
        events.remove(named[len(named) // 2])
    assert code in {violation.code for violation in checked(generated, events).violations}


def test_what_was_written_is_read_back_in_order(tmp_path: Path) -> None:
    """A file each process; merged by time, with the writer's name."""
    generated = generate(5)
    write(generated.events, tmp_path)
    found = History.read(tmp_path).events
    assert [event["at"] for event in found] == [event["at"] for event in generated.events]
    for event in generated.events:
        assert event in found
