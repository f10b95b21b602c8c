"""What a run may spend: purchases and money, counted where its draws are durable (Q5)."""

from __future__ import annotations

from dataclasses import dataclass

from rowmill.streams.core.identity import digest

MICROS = 1_000_000
"""Money is added up in whole millionths, so that a thousand prices of 0.01 are 10 to the call."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_calls`: purchases; `budget`: money for them. None: without end."""

    max_calls: int | None = None
    budget: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return self.max_calls is not None or self.budget is not None


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a run's purchases have drawn: their number, and their price in millionths."""

    calls: int = 0
    micros: int = 0

    def plus(self, cost: float) -> Drawn:
        """Return what is drawn after one more purchase at `cost`."""
        return Drawn(self.calls + 1, self.micros + in_micros(cost))


def in_micros(cost: float) -> int:
    """Return an amount of money in millionths, rounded."""
    return round(cost * MICROS)


def refusal(drawn: Drawn, limits: Limits, cost: float) -> str | None:
    """Say why one more purchase at `cost` may not be made, None where it may."""
    after = drawn.plus(cost)
    if limits.max_calls is not None and after.calls > limits.max_calls:
        return f"the limit of {limits.max_calls:,} calls is reached (--max-calls)"
    if limits.budget is not None and after.micros > in_micros(limits.budget):
        spent = drawn.micros / MICROS
        return f"the budget of {limits.budget:g} does not reach for the next call: {spent:g} drawn (--budget)"
    return None


def draw_id(receipt: str, purchase: str | None) -> str:
    """Name the draw of one purchase, the same however often it is asked for.

    `purchase`: of the stored receipt that the new purchase replaces, None where there is none: a
    purchase that came to nothing before it was durable is drawn for once, whoever opens it again.
    """
    return digest(["draw", receipt, purchase])
