"""Reading a history: files merged by time, torn last lines, the cut at a rebuilding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.events import History, TornLine


def test_files_are_merged_by_time_and_name_their_writer(tmp_path: Path) -> None:
    """Equal times keep the order of their file."""
    (tmp_path / "rows-1.jsonl").write_text('{"at":1,"event":"a"}\n{"at":3,"event":"c"}\n')
    (tmp_path / "sink-2.jsonl").write_text('{"at":2,"event":"b"}\n')
    events = History.read(tmp_path).events
    assert [(event["event"], event["by"]) for event in events] == [
        ("a", "rows-1"),
        ("b", "sink-2"),
        ("c", "rows-1"),
    ]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    """A kill tears it."""
    (tmp_path / "rows-1.jsonl").write_text('{"at":1,"event":"a"}\n{"at":3,"ev')
    assert len(History.read(tmp_path).events) == 1


def test_a_torn_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """Something else than a kill tore it, and what it said is lost."""
    (tmp_path / "rows-1.jsonl").write_text('{"at":1,"ev\n{"at":3,"event":"c"}\n')
    with pytest.raises(TornLine, match=r"rows-1\.jsonl, line 1"):
        History.read(tmp_path)


def test_what_happens_after_a_rebuilding_is_another_run(tmp_path: Path) -> None:
    """The checker looks at what was before."""
    names = ("sent", "rebuilding", "sent")
    history = History.of([{"at": at, "by": "x-1", "event": name} for at, name in enumerate(names)])
    assert len(history.before("rebuilding").events) == 1
    assert history.before("calm") is history
