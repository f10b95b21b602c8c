from __future__ import annotations

import os
from pathlib import Path

import pytest

from rowmill.streams.engine.directory import DataDirectory, DirectoryTaken, DirectoryUnusable


def test_a_directory_is_taken_once_and_the_owner_named(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path / "w0")
    with pytest.raises(DirectoryTaken, match=f"process {os.getpid()} works in this"):
        DataDirectory(tmp_path / "w0")
    first.release()
    DataDirectory(tmp_path / "w0").release()


def test_the_instance_id_outlives_the_process_and_is_no_other_directory_s(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path / "w0")
    first.release()
    again, other = DataDirectory(tmp_path / "w0"), DataDirectory(tmp_path / "w1")
    assert first.instance == again.instance
    assert again.instance != other.instance


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "w0")
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_a_path_that_cannot_be_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryUnusable, match="file"):
        DataDirectory(tmp_path / "file" / "w0")
