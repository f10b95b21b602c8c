"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """Fulfils `ports.Clock`."""

    def monotonic_ms(self) -> int:
        """Milliseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
