"""A disk that is really full, seen by a real broker."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.ops.kafka import data, embedded
from rowmill.ops.kafka.errors import DiskFull
from tests.kit.broker import OwnBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root that may mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_start_on_a_full_disk_says_so(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FREE_BYTES_MIN", 0)
    broker = OwnBroker(small_disk / "home")
    broker.start()
    broker.stop()
    _fill(small_disk / "other")
    try:
        with pytest.raises(DiskFull, match="No space left"):
            broker.start()
        assert not embedded.status(broker.settings).running
    finally:
        broker.stop()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def test_too_little_space_is_refused_before_anything_is_written(small_disk: Path) -> None:
    broker = OwnBroker(small_disk / "home")
    with pytest.raises(DiskFull, match="16 MiB free, at least 256 needed"):
        broker.start()
    assert not (small_disk / "home" / "kafka" / "data").exists()
