"""Brokers for tests: the session's one, and one of a test's own that it may kill."""

from __future__ import annotations

import os
import signal
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from rowmill.ops.kafka import embedded
from rowmill.ops.kafka.jars import KAFKA_VERSION
from rowmill.ops.kafka.probe import cluster_id
from rowmill.settings import Settings
from tests.kit.until import until_sync

IMAGE_DEFAULT = f"apache/kafka:{KAFKA_VERSION}"


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as attempt:
        attempt.bind(("127.0.0.1", 0))
        port: int = attempt.getsockname()[1]
        return port


def chosen() -> str:
    """Say which broker the session's tests use."""
    if kafka := os.environ.get("ROWMILL_KAFKA"):
        return f"existing cluster {kafka} (ROWMILL_KAFKA)"
    if os.environ.get("ROWMILL_TEST_CONTAINERS") == "1":
        return f"testcontainers, image {os.environ.get('KAFKA_IMAGE', IMAGE_DEFAULT)}"
    return f"embedded Apache Kafka {KAFKA_VERSION}"


@dataclass(slots=True)
class SessionBroker:
    """What all tests of a session share; each keeps apart by its own topic prefix."""

    bootstrap: str
    started_in_s: float
    stop: Any

    @classmethod
    def start(cls, home: Path) -> SessionBroker:
        """Start, or name, the broker that `chosen` says; `home` is for an embedded one."""
        if kafka := os.environ.get("ROWMILL_KAFKA"):
            return cls(kafka, 0.0, lambda: None)
        began = time.monotonic()
        if os.environ.get("ROWMILL_TEST_CONTAINERS") == "1":
            bootstrap, stop = _start_container()
        else:
            own = OwnBroker(home)
            own.start()
            bootstrap, stop = own.bootstrap, own.stop
        return cls(bootstrap, time.monotonic() - began, stop)


class OwnBroker:
    """An embedded broker of one test: `with OwnBroker(tmp_path) as broker: broker.kill_9()`."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.settings = Settings(home=home, kafka="", kafka_port=free_port(), **settings)
        self.bootstrap = self.settings.bootstrap

    def start(self) -> embedded.Broker:
        """Start it, or start it again on the same port and data."""
        return embedded.start(self.settings)

    def stop(self) -> None:
        """End it as an operator would."""
        embedded.stop(self.settings)

    def kill_9(self) -> None:
        """End it without a chance to write anything."""
        pid = embedded.status(self.settings).pid
        victim = psutil.Process(pid)
        victim.send_signal(signal.SIGKILL)
        until_sync(lambda: not embedded.status(self.settings).running, within_s=10)

    def freeze(self) -> None:
        """Stop it from running without ending it, as a long pause of its machine would."""
        psutil.Process(embedded.status(self.settings).pid).suspend()

    def thaw(self) -> None:
        """Let a frozen one go on."""
        psutil.Process(embedded.status(self.settings).pid).resume()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def fresh_settings(broker: SessionBroker, home: Path, **more: Any) -> Settings:
    """Return settings of a test's own mill on the session's broker: own topics, own home."""
    prefix = f"t{uuid.uuid4().hex[:10]}."
    return Settings(kafka=broker.bootstrap, topic_prefix=prefix, home=home, **more)


def _start_container() -> tuple[str, Any]:
    """Start Kafka in a container; the configuration is docker-compose.yml's, by environment."""
    from testcontainers.core.container import DockerContainer

    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    config = {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:29093",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "LISTENERS": "OUTSIDE://0.0.0.0:9092,CONTROLLER://127.0.0.1:29093",
        "ADVERTISED_LISTENERS": f"OUTSIDE://{bootstrap}",
        "INTER_BROKER_LISTENER_NAME": "OUTSIDE",
        "LISTENER_SECURITY_PROTOCOL_MAP": "OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "OFFSETS_TOPIC_NUM_PARTITIONS": "4",
        "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "AUTO_CREATE_TOPICS_ENABLE": "false",
        "MESSAGE_MAX_BYTES": "2097152",
    }
    container = DockerContainer(os.environ.get("KAFKA_IMAGE", IMAGE_DEFAULT))
    for name, value in config.items():
        container.with_env(f"KAFKA_{name}", value)
    container.with_bind_ports(9092, port)
    container.start()
    until_sync(lambda: cluster_id(port), within_s=90)
    return bootstrap, container.stop
