"""`rowmill up`, `status`, `down` with the real roles and an embedded broker of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.ops.kafka import embedded
from rowmill.settings import Settings
from rowmill.topics import creation
from tests.kit.broker import free_port
from tests.kit.until import until_sync


class Mill:
    """The command line on a home of the test's own."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings(home=home, kafka="", kafka_port=free_port(), partitions=2)
        self._environment = {
            name: os.environ[name] for name in os.environ if name != "ROWMILL_KAFKA"
        }
        self._environment |= {
            "ROWMILL_HOME": str(home),
            "ROWMILL_KAFKA_PORT": str(self.settings.kafka_port),
            "ROWMILL_PARTITIONS": "2",
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `rowmill WORDS`."""
        return subprocess.run(
            [sys.executable, "-m", "rowmill", *words],
            env=self._environment, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip

    def status(self) -> Any:
        """Return what `rowmill status --json` prints."""
        return json.loads(self.run("status", "--json").stdout)

    def all_ready(self) -> bool:
        """Return whether broker and workers are ready."""
        seen = self.status()
        return bool(
            seen["kafka"]["ready"]
            and seen["workers"]
            and all(worker["ready"] for worker in seen["workers"])
        )


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    mill = Mill(tmp_path / "home")
    yield mill
    mill.run("down")
    embedded.stop(mill.settings)


def test_a_machine_goes_up_survives_kills_and_goes_down(mill: Mill, tmp_path: Path) -> None:
    up = mill.run("up", "--plays", str(tmp_path))
    assert up.returncode == 0, up.stderr
    seen = mill.status()
    assert seen["kafka"]["ready"]
    assert seen["kafka"]["bootstrap"] == mill.settings.bootstrap
    assert [(worker["role"], worker["index"]) for worker in seen["workers"]] == [
        ("rows", 0), ("dispatch", 0), ("sink", 0)
    ]  # fmt: skip

    for victim in (seen["workers"][1]["pid"], seen["kafka"]["pid"]):
        os.kill(victim, signal.SIGKILL)
    until_sync(mill.all_ready, within_s=120, every_s=0.5)
    after = mill.status()
    assert after["kafka"]["pid"] != seen["kafka"]["pid"]
    assert after["workers"][1]["pid"] != seen["workers"][1]["pid"]

    down = mill.run("down")
    assert down.returncode == 0, down.stderr
    seen = mill.status()
    assert not seen["kafka"]["ready"]
    assert seen["workers"] == []
    assert mill.run("down").stderr.strip() == "nothing was running"


def test_down_leaves_a_broker_that_it_did_not_start(mill: Mill, tmp_path: Path) -> None:
    embedded.start(mill.settings)
    up = mill.run("up", "--plays", str(tmp_path), "--rows", "0", "--dispatch", "0", "--sink", "1")
    assert up.returncode == 0, up.stderr
    assert mill.run("down").returncode == 0
    assert embedded.status(mill.settings).ready


def test_a_taken_port_is_said_and_nothing_is_left(mill: Mill, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", mill.settings.kafka_port)):
        up = mill.run("up", "--plays", str(tmp_path))
    assert up.returncode == 3
    assert f"Port {mill.settings.kafka_port}" in up.stderr
    assert "Traceback" not in up.stderr
    assert mill.status()["supervisor"] is None


def test_topics_of_another_shape_are_refused_before_any_worker_starts(
    mill: Mill, tmp_path: Path
) -> None:
    embedded.start(mill.settings)
    creation.create(mill.settings.model_copy(update={"partitions": 3}))
    up = mill.run("up", "--plays", str(tmp_path))
    assert up.returncode == 3
    assert "has 3 partitions, expected 2" in up.stderr
    assert not (mill.settings.home / "logs" / "rows-0.log").exists()
