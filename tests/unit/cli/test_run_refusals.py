"""What is wrong with a command, a play or an input is said in a sentence before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.cli import app

PLAY = """\
from rowmill import Dataset, Params, Provider, Tool, bearer, col

class Options(Params):
    base_url: str = "http://127.0.0.1:1"

registry = Provider("registry", base_url=Options.base_url)
profile = Tool("registry.profile", registry, post="/company")
companies = Dataset("companies", key="Symbol").with_column("profile", profile(symbol=col("Symbol")))
"""

INPUT = "Symbol,Security\nMMM,3M\nAOS,A. O. Smith\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a good play and input; starting anything is a failure of the test."""
    (tmp_path / "play.py").write_text(PLAY)
    (tmp_path / "in.csv").write_text(INPUT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROWMILL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ROWMILL_KAFKA", raising=False)

    def started(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("rowmill.ops.supervisor.control.ensure", started)
    monkeypatch.setattr("rowmill.cli.driving.connect", started)
    mask = os.umask(0o022)
    yield tmp_path
    os.umask(mask)
    assert not (tmp_path / "home").exists()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, which must end with exit code 2; return what standard error says."""
    code = app.main(["run", *arguments])
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_a_missing_input_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "play.py", "--input", "no.csv")
    assert said == "no.csv: no such file. Nothing was called.\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "bad.csv is empty"),
        ("Symbol,Security\n", "a header and no rows"),
        ("Ticker,Security\nMMM,3M\n", 'no column "Symbol"'),
        ("Symbol;Security\nMMM;3M\n", "semicolons"),
        ('Symbol,Security\n"MMM,3M\n', "never closed"),
    ],
)
def test_an_input_that_cannot_be_used_is_refused_with_the_reason(
    place: Path, capsys: pytest.CaptureFixture[str], content: str, sentence: str
) -> None:
    (place / "bad.csv").write_text(content)
    said = refused(capsys, "play.py", "--input", "bad.csv", "--json")
    assert sentence in said
    assert "bad.csv" in said
    assert said.rstrip().endswith("Nothing was called.")


def test_bytes_that_are_not_utf_8_are_refused_by_their_place(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "bad.csv").write_bytes(b"Symbol,Security\nMMM,caf\xe9\n")
    said = refused(capsys, "play.py", "--input", "bad.csv")
    assert "byte 23 (0xE9) is not UTF-8. Try --encoding cp1252" in said


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def broken(:\n", "bad.py"),
        ("import no_such_module_at_all\n", "no_such_module_at_all"),
        ("x = 1\n", "no Dataset"),
        (PLAY.replace('col("Symbol")', 'col("Symbool")'), "Symbool"),
        (PLAY.replace("profile(symbol", "profil(symbol"), "profil"),
        (PLAY.replace("post=", "pots="), "pots"),
    ],
)
def test_a_play_that_cannot_be_loaded_is_refused_with_file_and_line(
    place: Path, capsys: pytest.CaptureFixture[str], source: str, sentence: str
) -> None:
    (place / "bad.py").write_text(source)
    said = refused(capsys, "bad.py", "--input", "in.csv")
    assert sentence in said
    assert "bad.py" in said


def test_a_missing_play_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no_play.py" in refused(capsys, "no_play.py", "--input", "in.csv")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--param", "speed=3"], "no such parameter"),
        (["--param", "speed"], "write KEY=VALUE"),
        (["--param", "base_url=not a url"], "base_url"),
        (["--run-id", "../../etc"], "can't be a run id"),
        (["--run-id", ""], "can't be a run id"),
        (["--out", "in.csv"], "is the input itself"),
        (["--out", "nowhere/out.csv"], "no folder"),
        (["--sheet", "postgresql://u:sesame@host/db"], "SQLite only"),
        (["--limit", "0"], "--limit"),
        (["--concurrency", "many"], "--concurrency"),
        (["--on-row-error", "ignore"], "--on-row-error"),
        (["--encoding", "klingon"], "no such encoding"),
        (["--no-such-flag"], "--no-such-flag"),
    ],
)
def test_a_wrong_argument_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    said = refused(capsys, "play.py", "--input", "in.csv", *arguments)
    assert sentence in said
    assert "sesame" not in said


def test_a_secret_that_is_not_set_is_refused_before_anything_starts(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secretive = PLAY.replace(
        "base_url=Options.base_url", 'base_url=Options.base_url, auth=bearer("KEY")'
    )
    (place / "secretive.py").write_text(secretive)
    said = refused(capsys, "secretive.py", "--input", "in.csv")
    assert "ROWMILL_SECRET_KEY" in said


def test_a_wrong_setting_is_refused_by_its_name(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWMILL_ROW_MAX", "lots")
    said = refused(capsys, "play.py", "--input", "in.csv")
    assert "ROWMILL_ROW_MAX" in said
    assert "'lots'" in said


def test_control_characters_of_an_input_reach_no_terminal(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "evil.csv").write_text("\x1b]0;owned\x07Ticker,[link=http://x]y\nMMM,3M\n")
    said = refused(capsys, "play.py", "--input", "evil.csv")
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "[link=http://x]y" in said


def test_force_and_retry_failed_exclude_each_other(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "play.py", "--input", "in.csv", "--force", "--retry-failed")
    assert "give one of them. Nothing was called." in said
