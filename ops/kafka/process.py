"""The broker's process: started apart from ours, found again, ended."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from rowmill.ops.kafka.errors import BrokerStays

MAIN_CLASS = "kafka.Kafka"
TERM_TIMEOUT_S = 20
"""A node with open clients ends in under 3 s; past this it hangs and SIGKILL follows."""

_KILL_TIMEOUT_S = 5
_LOG_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """What `broker.json` says: `pid` listens on `port` since `started_s`, seconds since 1970."""

    pid: int
    port: int
    started_s: float


def spawn(command: list[str], log: Path, directory: Path) -> psutil.Process:
    """Start `command` in a session of its own, printing to `log`.

    The shell ends at once, so the broker is nobody's child: no zombie stays when it is killed, and
    Ctrl-C in the caller's terminal does not reach it.
    Raises: psutil.NoSuchProcess if it died at once.
    """
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
    answer = subprocess.run(
        ["/bin/sh", "-c", '"$@" >>"$0" 2>&1 </dev/null & echo $!', str(log), *command],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=True,
        start_new_session=True,
        cwd=directory,
        umask=0o077,
    )
    return psutil.Process(int(answer.stdout))


def broker_at(pid: int, properties: Path) -> psutil.Process | None:
    """Return the process `pid` if it is the live broker of the configuration `properties`.

    Stronger than a start time: a recycled pid does not have this command line, and a stepped wall
    clock, from which start times are computed, does not change it. A zombie has none.
    """
    try:
        found = psutil.Process(pid)
        return found if found.cmdline()[-2:] == [MAIN_CLASS, str(properties)] else None
    except psutil.Error:
        return None


def recorded(state: Path, properties: Path) -> tuple[psutil.Process, Record] | None:
    """Return the running broker of a home and its record, None where there is none."""
    try:
        record = Record(**json.loads(state.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    found = broker_at(record.pid, properties)
    return (found, record) if found else None


def write_record(state: Path, record: Record) -> None:
    """Write `broker.json`, whole or not at all."""
    staged = state.with_suffix(".new")
    staged.write_text(json.dumps(asdict(record)))
    staged.replace(state)


def unrecorded(properties: Path) -> psutil.Process | None:
    """Return the broker of a home whose `broker.json` was lost, for instance by a killed start."""
    candidates = (broker_at(pid, properties) for pid in psutil.pids())
    return next((found for found in candidates if found), None)


def lives(broker: psutil.Process) -> bool:
    """Tell if the process is there and no zombie."""
    try:
        return broker.is_running() and broker.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end(broker: psutil.Process) -> None:
    """End the broker: SIGTERM, so that it closes its logs; SIGKILL if it hangs.

    Raises: BrokerStays.
    """
    for number, timeout_s in ((signal.SIGTERM, TERM_TIMEOUT_S), (signal.SIGKILL, _KILL_TIMEOUT_S)):
        try:
            broker.send_signal(number)
        except psutil.NoSuchProcess:
            return
        if _gone(broker, timeout_s):
            return
    raise BrokerStays(broker.pid)


def holder_of(port: int) -> str | None:
    """Say who listens on `port`, such as `python3 (pid 4711)`; None where nobody can be seen."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.laddr:
                continue
            if connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return None


def _gone(broker: psutil.Process, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while lives(broker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
