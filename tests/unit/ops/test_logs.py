"""What reaches a log, and what must not."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest
import structlog
from pydantic import SecretStr

from rowmill.ops import logs
from rowmill.settings import Settings

SECRET = "s3cr3t/value+1"


@pytest.fixture(autouse=True)
def _restored() -> object:
    yield
    structlog.reset_defaults()
    logging.basicConfig(handlers=[], force=True)


@pytest.mark.behaviour("R10")
def test_no_secret_reaches_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    monkeypatch.setenv("ROWMILL_SECRET_REGISTRY_KEY", SECRET)
    monkeypatch.setenv("ROWMILL_SECRET_OTHER_FILE", str(tmp_path / "key"))
    logs.configure(Settings(home=tmp_path, kafka_sasl_password=SecretStr("of-kafka")))
    encoded = base64.b64encode(SECRET.encode()).decode()
    basic = base64.b64encode(f"user:{SECRET}".encode()).decode()
    structlog.get_logger("x").warning("asked", auth=f"Bearer {SECRET}", alone=encoded, basic=basic)
    logging.getLogger("library").warning("GET /?key=s3cr3t%2Fvalue%2B1 of-kafka from-a-file")
    try:
        raise ValueError(SECRET)
    except ValueError:
        structlog.get_logger("x").exception("failed")
    printed = capsys.readouterr().err
    assert printed.count("[secret]") >= 6
    for value in (
        SECRET,
        encoded,
        basic,
        basic[8:-4],
        "s3cr3t%2Fvalue%2B1",
        "of-kafka",
        "from-a-file",
    ):
        assert value not in printed


def test_a_line_is_one_line_without_control_characters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logs.configure(Settings(home=tmp_path))
    structlog.get_logger("x").info("cell", value="a\nb\x1b[31mred\x07\u009b0m")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "\u009b" not in printed


def test_libraries_are_quiet_below_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logs.configure(Settings(home=tmp_path, log="debug"))
    logging.getLogger("aiokafka.producer").debug("every send")
    structlog.get_logger("x").debug("ours")
    printed = capsys.readouterr().err
    assert "every send" not in printed
    assert "ours" in printed
    assert not logging.getLogger("aiokafka").isEnabledFor(logging.DEBUG)
