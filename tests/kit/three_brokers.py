"""A cluster of three nodes, each broker and controller, whose nodes a test kills, freezes and starts."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from aiokafka.admin import AIOKafkaAdminClient

from rowmill.ops.kafka import process
from rowmill.ops.kafka.data import _new_cluster_id
from rowmill.ops.kafka.jars import class_path
from rowmill.ops.kafka.java import find_java
from rowmill.ops.kafka.layout import java_options, properties
from rowmill.ops.kafka.probe import cluster_id
from tests.kit.broker import free_port
from tests.kit.until import until_sync

NODES = (1, 2, 3)
HEAP_MB = 192


class Node:
    """One of the three."""

    def __init__(self, number: int, root: Path) -> None:
        self.number = number
        self.port, self.controller_port = free_port(), free_port()
        self.root = root / f"node-{number}"
        self.config = self.root / "server.properties"
        self.process: psutil.Process | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    def write_config(self, nodes: list[Node], more: dict[str, str]) -> None:
        """Write its configuration: the embedded broker's, but as one of several."""
        voters = ",".join(f"{node.number}@127.0.0.1:{node.controller_port}" for node in nodes)
        text = properties(self.root / "data", self.port, self.controller_port)
        changed = {
            "node.id": str(self.number),
            "controller.quorum.voters": voters,
            "default.replication.factor": "3",
            "offsets.topic.replication.factor": "3",
            "min.insync.replicas": "2",
            # A replica that stands still leaves the set soon enough for a test.
            "replica.lag.time.max.ms": "5000",
            **more,
        }
        lines = [line for line in text.splitlines() if line.partition("=")[0] not in changed]
        lines += [f"{name}={value}" for name, value in changed.items()]
        self.config.write_text("\n".join(lines) + "\n")


class ThreeBrokers:
    """Three nodes with two in-sync replicas as the least. Use it as a context manager."""

    def __init__(self, root: Path, **more: str) -> None:
        """`more`: configuration of every node, with `_` for dots."""
        self._root = root / "cluster"
        self.nodes = [Node(number, self._root) for number in NODES]
        self._more = {name.replace("_", "."): value for name, value in more.items()}
        self._java = [str(find_java().path), *java_options(HEAP_MB), "-cp", class_path(print)]

    @property
    def bootstrap(self) -> str:
        """Every node's address."""
        return ",".join(node.address for node in self.nodes)

    def start(self, node: Node) -> None:
        """Start a node, also on the data of one that was killed."""
        command = [*self._java, process.MAIN_CLASS, str(node.config)]
        node.process = process.spawn(command, node.root / "broker.log", node.root)

    def until_up(self, within_s: float = 90) -> None:
        """Return once every node answers. Raises: TimeoutError."""
        until_sync(lambda: all(cluster_id(node.port) for node in self.nodes), within_s=within_s)

    def kill_9(self, node: Node) -> None:
        """End a node without a chance to write anything."""
        assert node.process is not None
        node.process.send_signal(signal.SIGKILL)
        gone = node.process
        until_sync(lambda: not process.lives(gone), within_s=10)

    def freeze(self, node: Node) -> None:
        """Let a node stand still."""
        assert node.process is not None
        node.process.suspend()

    def thaw(self, node: Node) -> None:
        """Let it go on."""
        assert node.process is not None
        node.process.resume()

    def leader_of(self, topic: str, partition: int = 0) -> Node:
        """Return the node that leads a partition now."""
        found = asyncio.run(self._leader(topic, partition))
        return next(node for node in self.nodes if node.number == found)

    async def _leader(self, topic: str, partition: int) -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            (described,) = await admin.describe_topics([topic])
            (leader,) = (
                one["leader"] for one in described["partitions"] if one["partition"] == partition
            )
            return int(leader)
        finally:
            await admin.close()

    def __enter__(self) -> Self:
        cluster = _new_cluster_id()
        for node in self.nodes:
            node.root.mkdir(parents=True)
            node.write_config(self.nodes, self._more)
            tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(node.config)]
            subprocess.run([*self._java, *tool], capture_output=True, check=True, timeout=60)
        for node in self.nodes:
            self.start(node)
        try:
            self.until_up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            if node.process is not None and process.lives(node.process):
                node.process.kill()
        for node in self.nodes:
            if node.process is not None:
                gone = node.process
                until_sync(lambda: not process.lives(gone), within_s=10)  # noqa: B023
        if kind is None:
            shutil.rmtree(self._root, ignore_errors=True)
