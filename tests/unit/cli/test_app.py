"""The root command: fast help, exit codes, one sentence for an error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.cli import app
from rowmill.cli.endings import end_block, resume_command
from rowmill.cli.faults import exit_code_of
from rowmill.cli.words import amount, clock, plain
from rowmill.client.report import Failure, report
from rowmill.errors import InfrastructureError, Interrupted
from rowmill.streams.core.accounting import Counts


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ROWMILL_HOME", str(tmp_path / "home"))
    mask = os.umask(0o022)
    yield tmp_path / "home"
    os.umask(mask)


def test_help_imports_none_of_the_heavy_libraries() -> None:
    heavy = "faust sqlalchemy aiokafka pydantic rich httpx structlog"
    code = (
        "import sys; from rowmill.cli import app; app.main(['--help']); "
        f"sys.exit(' '.join(n for n in '{heavy}'.split() if n in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rowmill run play.py --input leads.csv" in done.stdout


@pytest.mark.parametrize("command", list(app.COMMANDS))
def test_every_command_has_help_of_its_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main([command, "--help"]) == 0
    assert f"Usage: rowmill {command}" in capsys.readouterr().out


def test_an_unknown_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["rnu"]) == 2
    assert "rnu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InfrastructureError("Topic rows.input has 6 partitions, expected 12."), 3),
        (Interrupted("Paused."), 130),
        (KeyboardInterrupt(), 130),
        (ConnectionRefusedError(111, "refused"), 3),
        (ZeroDivisionError("division by zero"), 1),
    ],
)
def test_the_class_of_an_error_is_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


def test_an_unexpected_error_says_where_its_traceback_is(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(LookupError("\x1b[31mboom")) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\x1b" not in said
    assert str(home / "logs" / "rowmill-error.log") in said
    assert "boom" in (home / "logs" / "rowmill-error.log").read_text()


def test_the_end_block_says_how_many_why_and_what_next() -> None:
    found = report(
        run_id="7f3a", dataset="leads", state="finished", total=503,
        counts=Counts(completed=500, failed=3, calls={"d": 993}, calls_reused={"d": 11},
                      spent={"d": 6.0}),
        before=Counts(), life=1, wall_s=14.2, sheet="leads.sqlite",
        failures=[Failure(error='domains 422 "\x1b[1munknown name"', rows=2, first_index=4),
                  Failure(error="line 89: 5 cells, 4 headers", rows=1, first_index=87)],
    )  # fmt: skip
    assert list(end_block(found, "rowmill run play.py --input leads.csv")) == [
        "done  503 = 500 completed + 3 failed  0:14  993 calls, 11 reused, spent 6.00",
        'failed: 2x domains 422 "?[1munknown name"; row 88: line 89: 5 cells, 4 headers',
        "again: rowmill run play.py --input leads.csv",
        "run: 7f3a     sheet: leads.sqlite",
    ]


def test_the_resume_command_is_the_same_with_the_run_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROWMILL_AGAIN", raising=False)
    given = [
        "/x/rowmill",
        "run",
        "my play.py",
        "--run-id=old",
        "--input",
        "a.csv",
        "--run-id",
        "old",
    ]
    monkeypatch.setattr(sys, "argv", given)
    assert resume_command("7f3a") == "/x/rowmill run 'my play.py' --input a.csv --run-id 7f3a"
    monkeypatch.setenv("ROWMILL_AGAIN", "bash ops/demo.sh --limit 5")
    assert resume_command("7f3a") == "bash ops/demo.sh --limit 5 --run-id 7f3a"


def test_words_for_a_terminal() -> None:
    assert plain("a\tb\nc\x1b[2J\u202eevil") == "a b c?[2J?evil"
    assert plain("x" * 600) == "x" * 499 + "…"
    assert [clock(0), clock(14.4), clock(3_725)] == ["0:00", "0:14", "1:02:05"]
    assert [amount(0), amount(6), amount(0.0004)] == ["0.00", "6.00", "0.0004"]
