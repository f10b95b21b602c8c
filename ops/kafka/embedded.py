"""Start, stop and look at the broker of a home. One broker a home, kept when its starter ends."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from rowmill.ops.kafka import data, diagnosis, process
from rowmill.ops.kafka.errors import (
    ClusterNamed,
    DiskFull,
    HomeNotWritable,
    PortDiffers,
    PortTaken,
)
from rowmill.ops.kafka.jars import KAFKA_VERSION, class_path
from rowmill.ops.kafka.java import find_java
from rowmill.ops.kafka.layout import Layout, configured_port, java_options, properties
from rowmill.ops.kafka.locks import exclusive
from rowmill.ops.kafka.probe import cluster_id
from rowmill.ops.kafka.process import Record
from rowmill.settings import Settings

READY_TIMEOUT_S = 60
"""3 s on an idle machine; a start after kill -9 reads its logs again."""

PORT_FREED_S = 5
"""How long a port that no living process holds may stay taken."""

_POLL_S = 0.05

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that answers. `already_running`: it was there before; its starter ends it."""

    pid: int
    bootstrap: str
    data_dir: Path
    already_running: bool


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What is seen of a home's broker. `rss_mb` in MiB; 0 and "" where none runs."""

    running: bool
    ready: bool
    pid: int
    bootstrap: str
    rss_mb: int
    uptime_s: float
    kafka: str
    data_dir: Path
    log: Path


def start(settings: Settings, report: Report = lambda _: None) -> Broker:
    """Return the home's broker, started unless it runs. It answers when this returns.

    `report` is told, in sentences, about what takes long. Blocks for 3 s; the first time also for
    the fetch. From a coroutine: `asyncio.to_thread`.
    Raises: ClusterNamed, and the InfrastructureErrors of `rowmill.ops.kafka.errors`.
    """
    if not settings.embedded:
        raise ClusterNamed(settings.kafka)
    layout = Layout.of(settings)
    with _disk_errors(layout.root):
        _make_private(layout.root)
        with exclusive(layout.lock, lambda: report("Another start is under way; waiting for it.")):
            return _join(settings, layout) or _start(settings, layout, report)


def stop(settings: Settings) -> bool:
    """End the home's broker; its data stays. Returns: False if none ran. Raises: BrokerStays."""
    layout = Layout.of(settings)
    if not layout.root.exists():
        return False
    with _disk_errors(layout.root), exclusive(layout.lock):
        found = process.recorded(layout.state, layout.properties)
        broker = found[0] if found else process.unrecorded(layout.properties)
        if broker is not None:
            process.end(broker)
        layout.state.unlink(missing_ok=True)
    return broker is not None


def status(settings: Settings) -> BrokerStatus:
    """Return what is seen of the home's broker, without waiting for it."""
    layout = Layout.of(settings)
    seen = BrokerStatus(
        running=False,
        ready=False,
        pid=0,
        bootstrap="",
        rss_mb=0,
        uptime_s=0.0,
        kafka=KAFKA_VERSION,
        data_dir=layout.data,
        log=layout.log,
    )
    found = process.recorded(layout.state, layout.properties)
    if found is None:
        return seen
    broker, record = found
    try:
        rss_mb = broker.memory_info().rss >> 20
    except psutil.Error:  # it ended between two looks
        return seen
    return replace(
        seen,
        running=True,
        ready=cluster_id(record.port) is not None,
        pid=record.pid,
        bootstrap=f"127.0.0.1:{record.port}",
        rss_mb=rss_mb,
        uptime_s=round(time.time() - record.started_s, 1),
    )


def _join(settings: Settings, layout: Layout) -> Broker | None:
    """Return the broker that runs already, also one whose record was lost by a killed start."""
    found = process.recorded(layout.state, layout.properties)
    if found is None:
        lost = process.unrecorded(layout.properties)
        if lost is None:
            return None
        port = configured_port(layout.properties.read_text())
        found = lost, Record(lost.pid, port, lost.create_time())
        process.write_record(layout.state, found[1])
    broker, record = found
    if record.port != settings.kafka_port:
        raise PortDiffers(record.port, settings.kafka_port)
    _wait_ready(layout, broker, record.port, data.recognise(layout), log_start=0)
    return Broker(broker.pid, settings.bootstrap, layout.data, already_running=True)


def _start(settings: Settings, layout: Layout, report: Report) -> Broker:
    port = settings.kafka_port
    _check_port(port)
    java = find_java()
    base = [str(java.path), *java_options(settings.kafka_heap_mb), "-cp", class_path(report)]
    data.check_space(layout.root)
    cluster = data.prepare(layout, base)
    layout.properties.write_text(properties(layout.data, port, _free_port()))
    log_start = layout.log.stat().st_size if layout.log.exists() else 0
    command = [*base, process.MAIN_CLASS, str(layout.properties)]
    try:
        broker = process.spawn(command, layout.log, layout.root)
    except psutil.NoSuchProcess as error:  # it died before it was looked at
        raise diagnosis.why_it_died(layout, log_start) from error
    try:
        process.write_record(layout.state, Record(broker.pid, port, time.time()))
        _wait_ready(layout, broker, port, cluster, log_start)
    except BaseException:
        process.end(broker)
        layout.state.unlink(missing_ok=True)
        raise
    return Broker(broker.pid, settings.bootstrap, layout.data, already_running=False)


def _wait_ready(
    layout: Layout, broker: psutil.Process, port: int, cluster: str, log_start: int
) -> None:
    """Return once the broker of `cluster` answers on `port`. Raises: why it never will."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while (answered := cluster_id(port)) != cluster:
        if answered is not None:
            raise PortTaken(port, f"a broker of the Kafka cluster {answered}")
        if not process.lives(broker):
            _check_port(port)
            raise diagnosis.why_it_died(layout, log_start)
        if time.monotonic() > deadline:
            reason = f"it did not answer on port {port} within {READY_TIMEOUT_S} s"
            raise diagnosis.died(reason, layout, log_start)
        time.sleep(_POLL_S)


def _check_port(port: int) -> None:
    """Raises: PortTaken, naming who has it."""
    deadline = time.monotonic() + PORT_FREED_S
    while (taken := _bind_error(port)) is not None:
        if isinstance(taken, PermissionError):
            raise PortTaken(port, "the system (ports below 1024 are root's)") from taken
        # A broker killed a moment ago holds its sockets on until the last of its threads is gone;
        # until then nobody can be named.
        holder = process.holder_of(port)
        if holder is not None or time.monotonic() > deadline:
            raise PortTaken(port, holder or "a process of another user") from taken
        time.sleep(_POLL_S)


def _bind_error(port: int) -> OSError | None:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka binds
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError as error:
            return error
    return None


def _free_port() -> int:
    """Return a free port for the controller, which nobody but the broker itself connects to."""
    with socket.socket() as attempt:
        attempt.bind(("127.0.0.1", 0))
        port: int = attempt.getsockname()[1]
        return port


def _make_private(directory: Path) -> None:
    """Make the directory, readable by its owner only: topics hold the rows."""
    before = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)
    directory.chmod(0o700)


@contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    """Say in words what the system refused us."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(directory, error.strerror or "disk full") from error
        place = Path(error.filename) if error.filename else directory
        raise HomeNotWritable(place, error.strerror or str(error)) from error
