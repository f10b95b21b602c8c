"""Secrets from the environment."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rowmill.errors import SecretMissing
from rowmill.streams.adapters.secrets import EnvironmentSecrets

VALUE = 's3cret/+"value=?'


@pytest.fixture
def secrets() -> EnvironmentSecrets:
    return EnvironmentSecrets({"ROWMILL_SECRET_REGISTRY_KEY": VALUE, "ROWMILL_SECRET_SHORT": "abc"})


def test_a_secret_comes_from_its_variable_or_its_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-a-file\n", encoding="utf-8")
    secrets = EnvironmentSecrets(
        {"ROWMILL_SECRET_A": "direct", "ROWMILL_SECRET_REGISTRY_KEY_FILE": str(file)}
    )
    assert secrets.get("A") == "direct"
    assert secrets.get("registry-key") == "from-a-file"
    assert secrets.found_in(b"x from-a-file y") == "REGISTRY_KEY"


def test_a_missing_secret_says_what_to_set(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    secrets = EnvironmentSecrets(
        {"ROWMILL_SECRET_EMPTY": "", "ROWMILL_SECRET_LOST_FILE": str(missing)}
    )
    for name in ("NOT_SET", "EMPTY"):
        with pytest.raises(SecretMissing, match=f"Set ROWMILL_SECRET_{name}") as caught:
            secrets.get(name)
        assert caught.value.exit_code == 2
    with pytest.raises(SecretMissing, match="ROWMILL_SECRET_LOST_FILE: can't read .*No such file"):
        secrets.get("LOST")
    assert secrets.found_in(b"anything") is None


def test_a_value_that_no_header_carries_is_refused_without_being_shown() -> None:
    for value in ("two\nlines-of-it", "schlüssel-wert"):
        secrets = EnvironmentSecrets({"ROWMILL_SECRET_A": value})
        with pytest.raises(SecretMissing, match="holds a line break or a character") as caught:
            secrets.get("A")
        assert value not in str(caught.value)


@pytest.mark.behaviour("R10")
@pytest.mark.parametrize(
    "shown",
    [
        VALUE,
        quote(VALUE),
        quote(VALUE, safe=""),
        quote(VALUE, safe="").lower().replace("s3cret", "s3cret"),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE)[1:-1].replace("/", "\\/"),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
        base64.b64encode(b"user:" + VALUE.encode()).decode(),
        base64.b64encode(b"us:" + VALUE.encode() + b"tail").decode(),
    ],
)
def test_a_value_is_found_however_it_is_written(secrets: EnvironmentSecrets, shown: str) -> None:
    assert secrets.found_in(f'{{"echo":"{shown}"}}'.encode()) == "REGISTRY_KEY"


@pytest.mark.behaviour("R10")
@given(
    before=st.binary(max_size=6),
    value=st.text("abc/+=?~ é", min_size=8),
    after=st.binary(max_size=6),
)
def test_base64_hides_a_value_in_no_alignment(before: bytes, value: str, after: bytes) -> None:
    secrets = EnvironmentSecrets({"ROWMILL_SECRET_A": value})
    assume(secrets.found_in(b"") is None)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert secrets.found_in(encode(before + value.encode() + after)) == "A"


def test_short_values_are_not_searched(secrets: EnvironmentSecrets) -> None:
    """ "abc" stands in many honest answers, each of them paid for."""
    assert secrets.get("SHORT") == "abc"
    assert secrets.found_in(b"abc abc") is None


def test_no_value_is_shown_by_repr(secrets: EnvironmentSecrets) -> None:
    assert repr(secrets) == "EnvironmentSecrets(ROWMILL_SECRET_REGISTRY_KEY, ROWMILL_SECRET_SHORT)"
