"""What a checked run says: which promise was broken, for which row or key, and the proof."""

from __future__ import annotations

from dataclasses import dataclass

from tests.history.events import History
from tests.history.invariant import Invariant, Violation


@dataclass(frozen=True)
class Report:
    """The outcome of a check. `skipped`, `left_out`: code -> why it was not checked."""

    violations: list[Violation]
    checked: list[Invariant]
    skipped: dict[str, str]
    left_out: dict[str, str]
    history: History

    @property
    def ok(self) -> bool:
        """True where no promise was found broken."""
        return not self.violations

    def __str__(self) -> str:
        return "\n".join(f"{v.code} {v.subject}: {v.why}" for v in self.violations)
