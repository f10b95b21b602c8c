"""The history: what this process did, for tests that look for broken promises (docs/history.md)."""

from __future__ import annotations

import os
import time

import msgspec

from rowmill.settings import Settings
from rowmill.streams.ports import Note, silent


class History:
    """Fulfils `ports.Note`: each event is a JSON line, written by one `os.write`.

    What was written survives a kill -9: it is in the kernel's hands, not in a buffer of Python.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, event: str, **fields: object) -> None:
        """Write an event with the time of now, nanoseconds of CLOCK_MONOTONIC."""
        line = self._encode({"at": time.monotonic_ns(), "event": event, **fields})
        os.write(self._descriptor, line + b"\n")


def history_of(settings: Settings, role: str) -> Note:
    """Return what this process writes its history by: nothing at all unless `settings.history`."""
    if settings.history is None:
        return silent
    settings.history.mkdir(parents=True, exist_ok=True)
    path = settings.history / f"{role}-{os.getpid()}.jsonl"
    return History(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
