"""A loop whose clock jumps to the next timer: leases of minutes pass at once, and alike on any machine."""

from __future__ import annotations

import asyncio
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready; where nothing is, it is the next timer's time."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 1_000.0

    def time(self) -> float:
        """Return the virtual clock, seconds."""
        return self._now_s

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready and loop._scheduled:
            self._now_s = max(self._now_s, loop._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]  # asyncio's own turn
