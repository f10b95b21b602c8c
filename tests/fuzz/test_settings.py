"""Whatever stands in the environment and in rowmill.toml: settings, or a sentence about them."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given

from rowmill.cli.faults import exit_code_of
from rowmill.settings import Settings
from rowmill.streams.adapters.sheet.url import normal_url
from rowmill.streams.ports import SheetUnusable
from rowmill.topics.connection import client_options
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import ODD_NUMBERS, ODD_TEXTS, changed_bytes

NAMES = tuple(Settings.model_fields)
TEXTS = [
    text
    for text in (*ODD_TEXTS, *map(str, ODD_NUMBERS), "~", "~nobody/x", "/dev/null", "h:1,h:2", "[]")
    if "\0" not in text  # no environment can hold one
]
TOML = [
    b'partitions = 4\nlease_s = 20.5\nlog = "debug"\nhome = "/tmp/x"\nkafka = "h:9092"\n',
    b'sheet = "sqlite:///x.sqlite"\n[table]\na = 1\n',
    b"\xef\xbb\xbflease_s = 1979-05-27T07:32:00Z\nkafka_port = 0x2384\nrow_max = [1, 2]\n",
]


def variables(drawn: bytes) -> dict[str, str]:
    """Return variables that follow from drawn bytes; none from none."""
    pairs = zip(drawn[::2], drawn[1::2], strict=False)
    return {NAMES[name % len(NAMES)]: TEXTS[value % len(TEXTS)] for name, value in pairs}


toml = changed_bytes(TOML)


def both(drawn: bytes) -> tuple[dict[str, str], bytes]:
    """Return an environment and a file that follow from drawn bytes."""
    return variables(drawn[:6] if drawn[0] % 2 else b""), toml(drawn[1:])


def load(environment: dict[str, str]) -> None:
    """Settings are there, and every role can reckon with them; or the CLI's last door says why not."""
    named = {f"ROWMILL_{name.upper()}": value for name, value in environment.items()}
    said = io.StringIO()
    with patch.dict(os.environ, named), redirect_stderr(said):
        try:
            settings = Settings()
        except Exception as error:  # noqa: BLE001 - what the last door makes of it is looked at
            code = exit_code_of(error)
        else:
            code = 0
            reckon(settings)
    assert code in (0, 2), said.getvalue()
    assert "fault in Rowmill" not in said.getvalue()
    assert len(said.getvalue()) < 2_500


def reckon(settings: Settings) -> None:
    """What roles and clients make of the numbers when they start."""
    seconds = (
        settings.lease_s, settings.drain_s, settings.session_timeout_s, settings.heartbeat_s,
        settings.commit_interval_s, settings.receipt_wait_s, settings.ask_again_s,
    )  # fmt: skip
    assert all(0 < round(value * 1000) < 1 << 63 for value in seconds), "below a millisecond"
    assert round(settings.receipt_ttl_days * 86_400_000) < 1 << 63
    assert str(settings.home)
    assert client_options(settings)["bootstrap_servers"]
    try:
        found = normal_url(settings.sheet_url)
    except SheetUnusable as error:
        check_words(error)
    else:
        assert found.startswith("sqlite:////")


def check_words(error: Exception) -> None:
    assert 10 < len(str(error)) < 1_000
    assert str(error).isprintable()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@fuzzed
@given(several(both))
@example([({"lease_s": "inf"}, b"")])  # OverflowError when a role starts
@example([({"lease_s": "1e-9"}, b"")])  # a lease of 0 ms
@example([({"session_timeout_s": "1e300"}, b"")])
@example([({}, b"\xff")])  # UnicodeDecodeError
@example([({}, b"a = " + b"[" * 5_000)])  # RecursionError
def test_whatever_is_set_is_settings_or_a_sentence(
    drawn: Sequence[tuple[dict[str, str], bytes]],
) -> None:
    def look() -> None:
        for environment, content in drawn:
            Path("rowmill.toml").write_bytes(content)
            load(environment)

    bounded(look)


SHEETS = [
    b"sqlite:///leads.sqlite", b"sqlite:////tmp/a/b.sqlite", b"postgresql://u:p@h:1/d?x=y",
    b"sqlite+pysqlite:///x", b"sqlite:///:memory:", b"sqlite:///file:x?uri=true", b"sqlite://h/x",
    b"sqlite:///~nobody-here/x", b"sqlite:///" + b"a" * 5_000,
]  # fmt: skip


@fuzzed
@given(several(changed_bytes(SHEETS)))
def test_any_sheet_url_is_a_file_or_a_sentence(urls: Sequence[bytes]) -> None:
    def look() -> None:
        for url in urls:
            name(url.decode("latin-1"))

    bounded(look)


def name(url: str) -> None:
    """It has one spelling, or is refused."""
    try:
        found = normal_url(url)
    except SheetUnusable as error:
        check_words(error)
    else:
        assert normal_url(found) == found
