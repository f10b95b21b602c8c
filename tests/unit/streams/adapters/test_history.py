"""The history's lines: off by default, whole, in a file of the process's own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from rowmill.settings import Settings
from rowmill.streams.adapters.history import history_of
from rowmill.streams.ports import silent


def test_no_history_is_kept_unless_a_folder_is_named(tmp_path: Path) -> None:
    assert history_of(Settings(home=tmp_path), "rows") is silent
    assert list(tmp_path.iterdir()) == []


def test_each_event_is_a_line_that_is_there_at_once(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    note = history_of(Settings(home=tmp_path, history=tmp_path / "history"), "rows")
    note("taken", partition=3, epoch=7)
    note("stopped")
    path = tmp_path / "history" / f"rows-{os.getpid()}.jsonl"
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert before <= first.pop("at") <= second.pop("at") <= time.monotonic_ns()
    assert (first, second) == ({"event": "taken", "partition": 3, "epoch": 7}, {"event": "stopped"})
    assert path.stat().st_mode & 0o077 == 0, "it names rows and receipts"
