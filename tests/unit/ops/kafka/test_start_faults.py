"""Whatever keeps the broker from starting ends in a sentence that says what to do, exit code 3."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rowmill.errors import InfrastructureError
from rowmill.ops.kafka import data, embedded
from rowmill.ops.kafka.errors import (
    BrokerDied,
    ClusterNamed,
    DataDirectoryBroken,
    DiskFull,
    HomeNotWritable,
    PortTaken,
)
from rowmill.ops.kafka.layout import Layout
from rowmill.settings import Settings
from tests.kit.broker import free_port

FORMATS = """#!/bin/sh
# Stands in for Java: reports a version, formats as Kafka's tool does, then dies as a broker.
case "$*" in
  -version) echo 'openjdk version "21.0.1" 2023-10-17' >&2 ;;
  *StorageTool*)
    for last; do :; done
    echo "version=1
cluster.id=AbCdEfGhIjKlMnOpQrStUv
node.id=1" > "$(sed -n 's/^log.dirs=//p' "$last")/meta.properties" ;;
  *) printf '%s\\n' "$BROKER_PRINTS" ; exit 1 ;;
esac
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a home whose Java formats well and whose broker prints $BROKER_PRINTS and dies."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FORMATS)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr(embedded, "class_path", lambda report: "")
    monkeypatch.setattr(data, "_new_cluster_id", lambda: "AbCdEfGhIjKlMnOpQrStUv")
    return Settings(home=tmp_path / "home", kafka="", kafka_port=free_port())


@pytest.fixture
def refused(settings: Settings) -> Callable[[type[InfrastructureError]], str]:
    """Start, and return the message of the expected error."""

    def start(kind: type[InfrastructureError]) -> str:
        with pytest.raises(kind) as caught:
            embedded.start(settings)
        assert caught.value.exit_code == 3
        assert not Layout.of(settings).state.exists()
        return str(caught.value)

    return start


@pytest.fixture
def listener(settings: Settings) -> Iterator[socket.socket]:
    """A server of another kind on the broker's port."""
    with socket.create_server(("127.0.0.1", settings.kafka_port)) as server:
        yield server


Refused = Callable[[type[InfrastructureError]], str]


def test_a_taken_port_names_its_holder_and_the_way_out(
    refused: Refused, listener: socket.socket
) -> None:
    message = refused(PortTaken)
    assert f"(pid {os.getpid()})" in message
    assert "ROWMILL_KAFKA_PORT=PORT" in message


def test_a_disk_without_space_is_found_before_the_start(
    refused: Refused, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.disk_usage", lambda path: SimpleNamespace(free=100 << 20))
    message = refused(DiskFull)
    assert "100 MiB free, at least 256 needed" in message
    assert str(settings.home) in message


def test_a_disk_that_fills_up_during_the_start_is_named(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_PRINTS", "java.io.IOException: No space left on device")
    assert "ROWMILL_HOME=DIRECTORY" in refused(DiskFull)


def test_a_broker_that_dies_shows_its_last_meaningful_lines(
    refused: Refused, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = "\tat kafka.Kafka$.main(Kafka.scala:99)\n" * 30
    monkeypatch.setenv("BROKER_PRINTS", f"ERROR the reason it gave\n{stack}")
    message = refused(BrokerDied)
    assert "ERROR the reason it gave" in message
    assert "Kafka.scala" not in message
    assert str(Layout.of(settings).log) in message


def test_lines_of_an_earlier_start_are_not_shown(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_PRINTS", "java.io.IOException: No space left on device")
    refused(DiskFull)
    monkeypatch.setenv("BROKER_PRINTS", "another reason")
    assert "another reason" in refused(BrokerDied)


def test_a_heap_that_is_too_small_names_its_setting(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_PRINTS", "java.lang.OutOfMemoryError: Java heap space")
    assert "ROWMILL_KAFKA_HEAP_MB" in refused(BrokerDied)


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (None, "meta.properties is missing"),
        ("", "names no cluster and node"),
        ("\x00\x01garbled", "names no cluster and node"),
        ("version=1\ncluster.id=x\nnode.id=7\n", "names no cluster and node"),
        ("version=1\ncluster.id=another\nnode.id=1\n", "belongs to cluster another"),
    ],
)
def test_broken_data_is_refused_and_left_as_it_is(
    refused: Refused, settings: Settings, meta: str | None, reason: str
) -> None:
    refused(BrokerDied)  # formats; the broker then dies
    place = Layout.of(settings).data / "meta.properties"
    place.unlink()
    place.with_name("topic-0").mkdir()
    if meta is not None:
        place.write_text(meta)
    message = refused(DataDirectoryBroken)
    assert reason in message
    assert "mv " in message
    assert place.with_name("topic-0").exists()


def test_data_that_was_moved_away_starts_a_new_cluster(
    refused: Refused, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(BrokerDied)
    layout = Layout.of(settings)
    layout.data.rename(layout.root / "data.broken")
    layout.cluster.write_text("another\n")
    monkeypatch.setenv("BROKER_PRINTS", "reached the broker again")
    assert "reached the broker again" in refused(BrokerDied)
    assert layout.cluster.read_text() == "AbCdEfGhIjKlMnOpQrStUv\n"


def test_formatting_that_was_cut_off_leaves_no_half(refused: Refused, settings: Settings) -> None:
    layout = Layout.of(settings)
    layout.staging.mkdir(parents=True)
    (layout.staging / "half").touch()
    refused(BrokerDied)
    assert [path.name for path in layout.data.iterdir()] == ["meta.properties"]


def test_a_home_that_is_a_file_is_named(settings: Settings, refused: Refused) -> None:
    settings.home.parent.mkdir(exist_ok=True)
    settings.home.touch()
    assert "ROWMILL_HOME=DIRECTORY" in refused(HomeNotWritable)


def test_nothing_is_started_where_a_cluster_is_named(settings: Settings) -> None:
    named = settings.model_copy(update={"kafka": "kafka.example:9092"})
    with pytest.raises(ClusterNamed, match="kafka.example:9092"):
        embedded.start(named)
    assert not settings.home.exists()


def test_a_home_without_a_broker_stops_and_shows_nothing(settings: Settings) -> None:
    assert embedded.stop(settings) is False
    seen = embedded.status(settings)
    assert (seen.running, seen.ready, seen.bootstrap) == (False, False, "")
    assert not settings.home.exists()
