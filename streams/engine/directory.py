"""One data directory per worker process: its exclusive lock and the instance id kept in it."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from rowmill.errors import InfrastructureError


class DirectoryTaken(InfrastructureError):
    """Another live process works in the data directory (F11)."""

    def __init__(self, path: Path, owner: str) -> None:
        who = f"process {owner}" if owner else "another process"
        super().__init__(
            f"{path}: {who} works in this data directory. Stop it, or give this worker another one."
        )


class DirectoryUnusable(InfrastructureError):
    """The data directory can't be made or written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: the data directory can't be used: {error.strerror}.")


class DataDirectory:
    """A worker's data directory, locked for this process until `release` or its death.

    `instance` is a random id that outlives restarts: the member id of the consumer group (a restart
    keeps its partitions) and the owner's name in epochs and leases. Containers often share a path
    or a host name, so it is neither. The kernel drops the lock with the process, whatever killed it.
    """

    def __init__(self, path: Path) -> None:
        """Lock `path`, made where it is missing. Raises: DirectoryTaken, DirectoryUnusable."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DirectoryUnusable(path, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._lock, 32).decode("ascii", "replace").strip()
            os.close(self._lock)
            raise DirectoryTaken(path, owner) from None
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
            self.instance = self._instance_id()
        except OSError as error:
            self.release()
            raise DirectoryUnusable(path, error) from error

    def release(self) -> None:
        """Give the directory up. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _instance_id(self) -> str:
        kept = self.path / "instance"
        if kept.exists() and (known := kept.read_text("ascii", "replace").strip()):
            return known
        fresh = secrets.token_hex(8)
        partial = self.path / "instance.partial"
        partial.write_text(fresh + "\n", "ascii")
        partial.replace(kept)
        return fresh
