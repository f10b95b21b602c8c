"""What a worker says when it can't start: what, where, what to do; exit code 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.settings import Settings
from tests.integration.engine.stage import PuppetProcess, Start
from tests.kit.broker import free_port

pytestmark = pytest.mark.broker


def test_a_second_worker_on_one_data_directory_refuses_and_names_the_first(
    settings: Settings, puppet: Start
) -> None:
    """F11."""
    first = puppet("w0").ready()
    second = puppet("w0")
    assert second.process.wait(60) != 0
    assert f"process {first.process.pid} works in this data directory" in second.log
    assert first.process.poll() is None


def test_a_broker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    nobody = Settings(kafka=f"127.0.0.1:{free_port()}", home=tmp_path / "home")
    with PuppetProcess(nobody, "w0") as worker:
        assert worker.process.wait(90) == 3
        assert nobody.kafka in worker.log
        assert "Traceback" not in worker.log


def test_a_missing_topic_is_named_and_not_made(settings: Settings) -> None:
    elsewhere = settings.model_copy(update={"topic_prefix": settings.topic_prefix + "none."})
    with PuppetProcess(elsewhere, "w0") as worker:
        assert worker.process.wait(90) == 3
        assert f"{elsewhere.topic_prefix}rows.input" in worker.log
        assert "rowmill topics create" in worker.log
