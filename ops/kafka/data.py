"""The broker's data directory: made once, recognised ever after."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from pathlib import Path

import psutil

from rowmill.ops.kafka.diagnosis import meaningful_lines
from rowmill.ops.kafka.errors import BrokerDied, DataDirectoryBroken, DiskFull
from rowmill.ops.kafka.layout import NODE_ID, Layout, properties

FREE_BYTES_MIN = 256 << 20
"""Less would not hold the index files that Kafka allocates for some 10 partitions at 10 MiB."""

FORMAT_TIMEOUT_S = 60


def check_space(directory: Path) -> None:
    """Raises: DiskFull where a broker would fill the disk right away."""
    free = psutil.disk_usage(str(directory)).free
    if free < FREE_BYTES_MIN:
        detail = f"{free >> 20} MiB free, at least {FREE_BYTES_MIN >> 20} needed"
        raise DiskFull(directory, detail)


def prepare(layout: Layout, java: list[str]) -> str:
    """Return the cluster id of the data directory, formatting a new one where there is none.

    `java`: the command up to the main class. Raises: DataDirectoryBroken, BrokerDied.
    """
    if layout.data.exists() and any(layout.data.iterdir()):
        return recognise(layout)
    cluster = _new_cluster_id()
    _format(layout, java, cluster)
    layout.cluster.write_text(cluster + "\n")
    if layout.data.exists():
        layout.data.rmdir()
    layout.staging.replace(layout.data)
    return cluster


def recognise(layout: Layout) -> str:
    """Return the cluster id of data that is this home's own. Raises: DataDirectoryBroken."""
    meta = layout.data / "meta.properties"
    try:
        lines = meta.read_text().splitlines()
    except FileNotFoundError:
        raise DataDirectoryBroken(layout.data, "meta.properties is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataDirectoryBroken(layout.data, f"meta.properties: {error}") from error
    entries = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    found = entries.get("cluster.id", "")
    if entries.get("node.id") != str(NODE_ID) or not found or "version" not in entries:
        raise DataDirectoryBroken(layout.data, "meta.properties names no cluster and node")
    expected = layout.cluster.read_text().strip() if layout.cluster.exists() else found
    if found != expected:
        reason = f"it belongs to cluster {found}, this home's cluster is {expected}"
        raise DataDirectoryBroken(layout.data, reason)
    return found


def _format(layout: Layout, java: list[str], cluster: str) -> None:
    """Let Kafka's own tool write the first metadata, apart from `data`: a kill leaves no half."""
    shutil.rmtree(layout.staging, ignore_errors=True)
    layout.staging.mkdir(mode=0o700)
    config = layout.root / "format.properties"
    config.write_text(properties(layout.staging, 1, 2))  # the tool opens no port
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
    try:
        answer = subprocess.run(
            [*java, *tool],
            capture_output=True,
            text=True,
            check=False,
            timeout=FORMAT_TIMEOUT_S,
            umask=0o077,
        )
    except subprocess.TimeoutExpired as error:
        reason = f"formatting its data directory took over {FORMAT_TIMEOUT_S} s"
        raise BrokerDied(reason, [], layout.log) from error
    finally:
        config.unlink()
    if answer.returncode != 0 or not (layout.staging / "meta.properties").exists():
        printed = answer.stdout + answer.stderr
        layout.log.write_text(printed)
        if "No space left on device" in printed:
            raise DiskFull(layout.data, "formatting stopped")
        lines = meaningful_lines(printed)
        raise BrokerDied("its data directory could not be formatted", lines, layout.log)


def _new_cluster_id() -> str:
    """Return 16 random bytes as Kafka writes them; a leading dash would read as an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
