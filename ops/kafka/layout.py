"""Where the broker of a home keeps its files, and the configuration that it runs with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rowmill.settings import Settings

RECORD_BYTES_MAX = 2 << 20
"""A row may have 900 KiB encoded; its inputs travel beside its outputs, with headers."""

NODE_ID = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The files below `{home}/kafka`."""

    root: Path

    @classmethod
    def of(cls, settings: Settings) -> Layout:
        """Return the layout of the settings' home, as an absolute path."""
        return cls(settings.home.expanduser().resolve() / "kafka")

    @property
    def data(self) -> Path:
        """Logs of topics and metadata; kept over restarts."""
        return self.root / "data"

    @property
    def staging(self) -> Path:
        """A data directory that is being formatted; renamed to `data` once whole."""
        return self.root / "data.new"

    @property
    def cluster(self) -> Path:
        """The id of the cluster that this home made."""
        return self.root / "cluster.id"

    @property
    def properties(self) -> Path:
        """The broker's configuration, written at each start. Also names its process."""
        return self.root / "server.properties"

    @property
    def state(self) -> Path:
        """Pid, port and start time of the running broker."""
        return self.root / "broker.json"

    @property
    def log(self) -> Path:
        """What the broker printed."""
        return self.root / "broker.log"

    @property
    def lock(self) -> Path:
        """Held while a broker is started or stopped."""
        return self.root / "lock"


def properties(data: Path, port: int, controller_port: int) -> str:
    """Return a `server.properties` for one node, broker and controller, on 127.0.0.1 only."""
    config = {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"BROKER://127.0.0.1:{port}",
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "message.max.bytes": RECORD_BYTES_MAX,
        "replica.fetch.max.bytes": RECORD_BYTES_MAX,
        # One node: three replicas, the default of Kafka's own topics, could never be placed.
        "default.replication.factor": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # 50 partitions, the default, cost a start 50 empty logs to open.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        # A group's first member would wait 3 s for others; here there are none.
        "group.initial.rebalance.delay.ms": 0,
        # After kill -9 the controller refuses the restarted broker until the session of the dead
        # one is over: 9 s by default, beside which a start takes 3 s.
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 500,
        # Of the heap, 128 MiB by default: more than half of it.
        "log.cleaner.dedupe.buffer.size": 16 << 20,
        # Two cores are shared with the workers.
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "num.recovery.threads.per.data.dir": 2,
    }
    return "".join(f"{key}={value}\n" for key, value in config.items())


def configured_port(text: str) -> int:
    """Return the port that clients connect to, of a `server.properties` that we wrote."""
    found = re.search(r"^listeners=BROKER://127\.0\.0\.1:(\d+)", text, re.MULTILINE)
    if found is None:
        raise ValueError("server.properties names no port of a broker on 127.0.0.1")
    return int(found[1])


def java_options(heap_mb: int) -> list[str]:
    """Return the options of the broker's Java for a heap of `heap_mb` MiB."""
    simple_logger = "-Dorg.slf4j.simpleLogger"
    return [
        f"-Xmx{heap_mb}m",
        # Memory and start time: no concurrent collector's threads, no second compiler. Measured with
        # four records a row through four groups, Java 17: a start costs 3.1 s of CPU instead of
        # 3.9 s, 240 MiB instead of 285; a row 0.84 ms in both until some 12,000 rows have passed,
        # then 0.65 ms with the second compiler.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        f"{simple_logger}.defaultLogLevel=warn",
        f"{simple_logger}.showDateTime=true",
        f"{simple_logger}.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        f"{simple_logger}.showThreadName=false",
    ]
