"""Log files of bounded size that a process appends to by itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LOG_BYTES_MAX = 16 << 20
"""A log is cut at this size; the cut part stays as `<name>.1` until the next cut."""


def open_for_append(path: Path) -> int:
    """Return a descriptor that a child may write to after this process is gone."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def cut(path: Path, *, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Move a log past `bytes_max` to `<name>.1`; return whether it was.

    The file is copied and emptied, not renamed: its writer keeps the descriptor it was given, and
    in append mode goes on at the new end.
    """
    if not path.exists() or path.stat().st_size <= bytes_max:
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def tail(path: Path, lines: int = 10, *, bytes_max: int = 16 << 10) -> list[str]:
    """Return up to the last `lines` lines, read from the last `bytes_max` bytes."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - bytes_max))
            return log.read().decode("utf-8", "replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []
