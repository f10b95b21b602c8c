"""What one input may cost: a second and 64 MiB, measured around each example (issue 4, point 6)."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS_MAX = 1.0
BYTES_MAX = 64 << 20

TRIES = 3
"""A busy machine stops any process for a second now and then; an input that hangs, hangs again."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


class TooSlow(AssertionError):
    """An input took more than a second, each time it was tried."""


class TooHungry(AssertionError):
    """An input took more than 64 MiB at its peak, each time it was tried."""


def bounded(work: Callable[[], T]) -> T:
    """Return what `work` returns. It may be called again, so it must begin anew each time.

    Raises: TooSlow, TooHungry; what `work` raises.
    """
    for left in reversed(range(TRIES)):
        before = _forget_peak()
        began_s = time.monotonic()
        found = work()
        took_s = time.monotonic() - began_s
        grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        if took_s <= SECONDS_MAX and grew <= BYTES_MAX:
            return found
        if not left and took_s > SECONDS_MAX:
            raise TooSlow(f"took {took_s:.2f} s, and as long {TRIES - 1} times before")
        if not left:
            raise TooHungry(f"took {grew / (1 << 20):.0f} MiB")
    raise AssertionError("unreachable: the last try returns or raises")


def _forget_peak() -> int:
    """Let the kernel count this process's peak anew; return the bytes it holds now (Linux)."""
    with open("/proc/self/clear_refs", "wb", buffering=0) as peak:
        peak.write(b"5")
    with open("/proc/self/statm", "rb", buffering=0) as sizes:
        return int(sizes.read().split()[1]) * _PAGE
