"""From a dead broker's log to a sentence that says what to do."""

from __future__ import annotations

import re
from pathlib import Path

from rowmill.errors import InfrastructureError
from rowmill.ops.kafka.errors import BrokerDied, DataDirectoryBroken, DiskFull
from rowmill.ops.kafka.layout import Layout

_READ_BYTES_MAX = 256 << 10
_LINES_SHOWN = 6
_STACK_FRAME = re.compile(r"\s+at |\s*\.\.\. \d+ more")
_WARNING = re.compile(r"^\S+ WARN ")

_BROKEN_DATA = ("InconsistentClusterIdException", "InconsistentBrokerMetadata", "CorruptRecord")

_REASONS = (
    ("OutOfMemoryError", "its heap was too small; raise it with ROWMILL_KAFKA_HEAP_MB=MIB"),
    ("Could not reserve enough space", "this machine has not enough free memory for its heap"),
    ("UnsupportedClassVersionError", "this Java is too old; it needs 17 or later"),
    ("Failed to acquire lock on file", "another broker has its data directory open"),
    ("AccessDeniedException", "a file of its data directory belongs to another user"),
    ("Too many open files", "it ran out of file descriptors; raise ulimit -n"),
)


def why_it_died(layout: Layout, log_start: int) -> InfrastructureError:
    """Return the error of a broker that printed what its log holds from byte `log_start` on."""
    printed = _read(layout.log, log_start)
    if "No space left on device" in printed:
        return DiskFull(layout.data, "the broker ended: No space left on device")
    if any(name in printed for name in _BROKEN_DATA):
        lines = meaningful_lines(printed)
        return DataDirectoryBroken(layout.data, lines[-1] if lines else "its records are corrupt")
    reason = next((reason for sign, reason in _REASONS if sign in printed), "its process ended")
    return BrokerDied(reason, meaningful_lines(printed), layout.log)


def died(reason: str, layout: Layout, log_start: int) -> BrokerDied:
    """Return the error of a broker that is given up for `reason`."""
    return BrokerDied(reason, meaningful_lines(_read(layout.log, log_start)), layout.log)


def meaningful_lines(printed: str) -> list[str]:
    """Return the last lines worth reading: no stack frames, repeats or mere warnings.

    Where there are only warnings, these; none is longer than 300 characters.
    """
    lines = [line for line in printed.splitlines() if line.strip()]
    told = [line for line in lines if not (_STACK_FRAME.match(line) or _WARNING.search(line))]
    kept: list[str] = []
    for line in told or lines:
        if not _STACK_FRAME.match(line):
            text = line.rstrip()[:300]
            if not kept or kept[-1] != text:
                kept.append(text)
    return kept[-_LINES_SHOWN:]


def _read(log: Path, start: int) -> str:
    try:
        with log.open("rb") as content:
            content.seek(0, 2)
            content.seek(max(start, content.tell() - _READ_BYTES_MAX))
            return content.read().decode("utf-8", "replace")
    except OSError:
        return ""
