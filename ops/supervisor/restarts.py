"""When a worker that died is started again. Pure: time is passed in."""

from __future__ import annotations

from dataclasses import dataclass, field

DEATHS_MAX = 5
"""Deaths within `WINDOW_S` before the first readiness: more is a fault that waiting won't mend."""
WINDOW_S = 60.0
STEADY_S = 30.0
"""A worker that was ready and lived this long has earned an immediate restart."""
DELAYS_S = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Wait before the nth restart in a row; the first is immediate: most deaths are single ones."""


@dataclass(slots=True)
class Restarts:
    """The deaths of one worker. `patient`: once it was ready, it is restarted for ever."""

    patient: bool
    _was_ready: bool = False
    _in_a_row: int = 0
    _deaths: list[float] = field(default_factory=list)

    def died(self, now_s: float, *, lived_s: float, ready: bool) -> float | None:
        """Return the seconds to wait before the restart, or None: give up.

        Args: `now_s` monotonic; `lived_s` since its start; `ready`: it had become ready.
        """
        if ready:
            self._was_ready = True
            self._deaths.clear()
            if lived_s >= STEADY_S:
                self._in_a_row = 0
        else:
            self._deaths = [at for at in self._deaths if now_s - at < WINDOW_S] + [now_s]
            if len(self._deaths) >= DEATHS_MAX and not (self.patient and self._was_ready):
                return None
        delay_s = DELAYS_S[min(self._in_a_row, len(DELAYS_S) - 1)]
        self._in_a_row += 1
        return delay_s

    @property
    def deaths(self) -> int:
        """Deaths in a row without becoming ready, within the window."""
        return len(self._deaths)
