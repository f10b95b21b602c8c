"""One writer a sheet: a lock beside the file, held as long as its process lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rowmill.streams.ports import SheetUnusable


class WriterLock:
    """The right to write one SQLite file.

    A file of its own: closing any descriptor of the database drops the locks that SQLite itself
    holds on it in this process (SQLite, "How To Corrupt", section 2.2). The kernel gives the lock
    back when the process dies, however it dies.
    """

    def __init__(self, sheet: Path) -> None:
        self._path = sheet.with_name(sheet.name + "-sink.lock")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SheetUnusable(f"{self._path} can't be opened: {error.strerror}.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise SheetUnusable(
                f"Sheet {sheet} is already written by another sink, process {owner or 'unknown'}. "
                "SQLite has one sink: stop that one, or use another sheet."
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the right back. The file stays: removing it would let two processes hold locks."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
