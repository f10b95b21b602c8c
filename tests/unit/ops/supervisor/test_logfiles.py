"""Logs stay bounded while their writer keeps its descriptor."""

from __future__ import annotations

import os
from pathlib import Path

from rowmill.ops.supervisor import logfiles


def test_a_log_is_cut_under_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "rows-0.log"
    writer = logfiles.open_for_append(path)
    os.write(writer, b"old\n" * 10)
    assert not logfiles.cut(path, bytes_max=40)
    os.write(writer, b"new\n")
    assert logfiles.cut(path, bytes_max=40)
    os.write(writer, b"newest\n")
    os.close(writer)
    assert path.read_bytes() == b"newest\n"
    assert (tmp_path / "rows-0.log.1").read_bytes().endswith(b"new\n")


def test_a_tail_is_the_last_lines_and_nothing_of_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "sink-0.log"
    assert logfiles.tail(path) == []
    path.write_text("".join(f"line {number}\n" for number in range(50)))
    assert logfiles.tail(path, 2) == ["line 48", "line 49"]
