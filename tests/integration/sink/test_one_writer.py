"""One sink writes a sheet: another process is refused, and told who has it."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.streams.ports import SheetUnusable


def _open_and_say(url: str, said: multiprocessing.Queue[str]) -> None:
    try:
        SqliteSheet(url)
        said.put("opened")
    except SheetUnusable as error:
        said.put(str(error))


def test_a_second_sink_refuses_and_names_the_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite"
    sheet = SqliteSheet(url)
    context = multiprocessing.get_context("spawn")
    said: multiprocessing.Queue[str] = context.Queue()
    for expected in (f"already written by another sink, process {os.getpid()}.", "opened"):
        second = context.Process(target=_open_and_say, args=(url, said))
        second.start()
        assert expected in said.get(timeout=60)
        second.join()
        sheet.close()
