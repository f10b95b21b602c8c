"""What one input may cost: a second and 64 MiB, measured around each example (issue 4, point 6).

A second of its own: what the process waited for a core, on a busy machine, is not counted. What it
slept is.
"""

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
"""A busy machine is slow in ways that no figure tells, now and then; a hang comes again."""

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
        began_s, waited_s = time.monotonic(), _waited_s()
        found = work()
        took_s = time.monotonic() - began_s
        if took_s > SECONDS_MAX:
            took_s -= _waited_s() - waited_s
        grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        if took_s <= SECONDS_MAX and grew <= BYTES_MAX:
            return found
        if not left and took_s > SECONDS_MAX:
            raise TooSlow(f"took {took_s:.2f} s, and as long {TRIES - 1} times before")
        if not left:
            raise TooHungry(f"took {grew / (1 << 20):.0f} MiB")
    raise AssertionError("unreachable: the last try returns or raises")


def _waited_s() -> float:
    """Return for how long this process was ready to run and had no core, since it began (Linux)."""
    try:
        with open("/proc/self/schedstat", "rb", buffering=0) as figures:
            return int(figures.read().split()[1]) / 1e9
    except FileNotFoundError:  # a kernel without the figures
        return 0.0


def _forget_peak() -> int:
    """Let the kernel count this process's peak anew; return the bytes it holds now (Linux)."""
    with open("/proc/self/clear_refs", "wb", buffering=0) as peak:
        peak.write(b"5")
    with open("/proc/self/statm", "rb", buffering=0) as sizes:
        return int(sizes.read().split()[1]) * _PAGE
