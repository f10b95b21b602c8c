"""`rowmill kafka` and `rowmill topics` without a broker: help, a named cluster, nothing running."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rowmill.cli import kafka, topics
from rowmill.topics.connection import BrokerUnreachable
from tests.kit.broker import free_port


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ROWMILL_KAFKA_PORT", str(free_port()))
    monkeypatch.delenv("ROWMILL_KAFKA", raising=False)


def test_start_starts_nothing_where_a_cluster_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROWMILL_KAFKA", "kafka.example:9092")
    result = CliRunner().invoke(kafka.app, ["start"])
    assert result.exit_code == 0
    assert "Nothing is started: ROWMILL_KAFKA names the cluster kafka.example:9092" in result.output
    assert not (tmp_path / "home").exists()


def test_status_of_no_broker_is_exit_code_3_and_names_the_command() -> None:
    result = CliRunner().invoke(kafka.app, ["status"])
    assert result.exit_code == 3
    assert "rowmill kafka start" in result.output


def test_status_as_json_has_a_pid_of_null_where_none_runs() -> None:
    result = CliRunner().invoke(kafka.app, ["status", "--json"])
    found = json.loads(result.stdout)
    assert (found["running"], found["pid"], found["kafka"]) == (False, None, "4.1.0")


def test_stop_without_a_broker_is_no_error() -> None:
    result = CliRunner().invoke(kafka.app, ["stop"])
    assert (result.exit_code, result.output) == (0, "No broker of this home runs.\n")


@pytest.mark.parametrize("command", ["create", "list"])
def test_topics_without_a_broker_say_how_to_start_it(command: str) -> None:
    result = CliRunner().invoke(topics.app, [command])
    assert isinstance(result.exception, BrokerUnreachable)
    assert "rowmill kafka start" in str(result.exception)


@pytest.mark.parametrize("app", [kafka.app, topics.app])
def test_help_shows_examples_before_options(app: object) -> None:
    shown = CliRunner().invoke(app, ["--help"]).output  # type: ignore[arg-type]
    assert shown.index("Examples:") < shown.index("Options")
