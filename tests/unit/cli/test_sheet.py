"""`rowmill sheet`: a file that is whole or not there, and errors that say what there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.cli.app import main
from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.streams.core.chunks import Chunk, Span
from rowmill.streams.core.row_writes import RowWrite
from tests.conformance.sheet.writes import SOURCE, patch, row


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A sheet with rows, the setting's."""
    made = f"sqlite:///{tmp_path}/s.sqlite"
    monkeypatch.setenv("ROWMILL_SHEET", made)
    sheet = SqliteSheet(made)
    rows: tuple[RowWrite, ...] = (
        row("a", {"key": "ä"}, {"v": "=1+1"}),
        patch("b", {"v": "x"}, index=1),
        row("c", {"id": "c"}, dataset="shops", run="run-2", run_number=2),
    )
    sheet.flush(SOURCE, Chunk((Span(0, None, 3, (0, 1, 2), rows),)))
    yield made
    sheet.close()


def run(*arguments: str) -> int:
    return main(["sheet", *arguments])


def test_export_writes_a_file(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.csv"
    assert run("export", "--dataset", "leads", "--out", str(out)) == 0
    assert out.read_bytes().decode() == "key,v\nä,=1+1\nb,x\n"
    said = capsys.readouterr().err
    assert "2 rows of leads." in said
    assert "1 of them are still running" in said
    assert "1 cells begin like a formula" in said
    assert [file.name for file in tmp_path.iterdir() if "partial" in file.name] == []


def test_json_lines(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run("export", "--dataset", "shops", "--format", "jsonl", "--out", str(out)) == 0
    assert '"input":{"id":"c"}' in out.read_text()


def test_a_missing_dataset_lists_those_there_are_and_leaves_the_file_alone(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert run("export", "--dataset", "lead", "--out", str(out)) == 2
    assert 'No dataset "lead"' in (said := capsys.readouterr().err)
    assert '"leads", "shops"' in said
    assert out.read_text() == "mine"


def test_without_a_name_several_datasets_are_listed(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("export") == 2
    assert 'holds "leads", "shops". Choose one with --dataset.' in capsys.readouterr().err


def test_a_missing_run_lists_the_newest(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "--dataset", "leads", "--run", "nope") == 2
    assert "newest runs: run-1" in capsys.readouterr().err


def test_a_missing_sheet_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "--sheet", f"sqlite:///{tmp_path}/no.sqlite") == 3
    assert "No sheet at" in capsys.readouterr().err


def test_a_file_that_can_not_be_written_is_told(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("export", "--dataset", "leads", "--out", str(tmp_path / "no" / "x.csv")) == 2
    assert "x.csv can't be written: No such file or directory." in capsys.readouterr().err


def test_a_pipe_is_written_and_stays_a_pipe(url: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert run("export", "--dataset", "leads", "--out", str(pipe)) == 0
    assert os.read(reader, 1_000).decode() == "key,v\nä,=1+1\nb,x\n"
    os.close(reader)
    assert pipe.is_fifo()


def test_list_shows_datasets_and_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    assert capsys.readouterr().out == (
        'leads  (table "leads")\n  run-1  1 completed, 1 running\n'
        'shops  (table "shops")\n  run-2  1 completed\n'
    )
