"""`rowmill check`: what the play is, or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rowmill.cli.check import check
from rowmill.errors import PlayError, UsageError

SP500 = Path(__file__).parents[3] / "examples" / "sp500"

PLAY = """\
from rowmill import Dataset, Provider, Tool, bearer, col
registry = Provider("registry", base_url="http://h.test", auth=bearer("REGISTRY_KEY"))
ask = Tool("registry.ask", registry, post="/x")
d = Dataset("d").with_column("a", ask(q=col("q")))
"""


def checked(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, arguments, catch_exceptions=False, standalone_mode=False).output


def test_a_play_that_fits_its_input_is_described() -> None:
    said = checked(
        str(SP500 / "play.py"), "--input", str(SP500 / "sp500-constituents.csv"),
        "--param", "base_url=http://h.test:1/a=b",
    )  # fmt: skip
    assert "dataset  companies" in said
    assert "column   profile: asks practice.profile" in said
    assert "column   domain: resolver" in said
    assert "column   label: plain function" in said
    assert "503 rows, 8 columns" in said
    assert "base_url = http://h.test:1/a=b" in said


def test_a_secret_is_asked_for_only_where_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "play.py"
    path.write_text(PLAY)
    monkeypatch.delenv("ROWMILL_SECRET_REGISTRY_KEY", raising=False)
    assert "secret   REGISTRY_KEY" in checked(str(path))
    with pytest.raises(PlayError, match="set ROWMILL_SECRET_REGISTRY_KEY"):
        checked(str(path), "--secrets")
    monkeypatch.setenv("ROWMILL_SECRET_REGISTRY_KEY", "canary-of-the-test")
    assert "canary" not in checked(str(path), "--secrets")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (["--param", "base_url"], "--param base_url: write KEY=VALUE."),
        (["--param", "a=1", "--param", "a=2"], "--param a stands twice"),
        (["--param", "bas_url=x"], 'Did you mean "base_url"?'),
    ],
)
def test_a_wrong_parameter_is_a_sentence(params: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        checked(str(SP500 / "play.py"), *params)
    assert said in str(refused.value)
