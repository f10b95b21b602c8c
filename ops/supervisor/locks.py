"""A lock that the kernel drops with its holder: who holds it lives, whatever a pid file says.

A pid can be given to another process; a lock can't. So "alive" is always asked of a lock, and a
pid is only read to name a process or to signal one whose lock is held.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

# `held` takes the lock for an instant to see whether it is free; whoever wants it looks again.
_PROBE_S = 0.5


class FileLock:
    """An advisory lock on a file; one holder (exclusive) or many (shared)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, *, shared: bool = False, within_s: float = _PROBE_S) -> bool:
        """Take the lock; False if another process still holds it after `within_s` seconds."""
        if self._descriptor is None:
            # Not inheritable (PEP 446): a child must not keep its parent's lock alive.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        deadline = time.monotonic() + within_s
        while True:
            try:
                fcntl.flock(self._descriptor, mode | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    self.release()
                    return False
                time.sleep(0.01)

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def held(path: Path) -> bool:
    """Return whether a live process holds the lock at `path`."""
    if not path.exists():
        return False
    with FileLock(path) as lock:
        return not lock.acquire(shared=True, within_s=0)
