"""The checker: all invariants over one history and what the run left behind.

A history is taken from the making of its topics: what happened before it is not known.
"""

from __future__ import annotations

from itertools import islice

from tests.history import bounds, durability, offsets, owners, pacing, paying, rows
from tests.history.events import History
from tests.history.finals import Finals
from tests.history.invariant import Invariant, Limits, Violation, Window
from tests.history.report import Report

__all__ = ["INVARIANTS", "LEFT_OUT", "Invariant", "Limits", "Violation", "Window", "check"]

INVARIANTS: tuple[Invariant, ...] = (
    rows.each_once,
    rows.totals,
    rows.endings_last,
    rows.as_calm,
    rows.own_cells,
    rows.columns_in_order,
    paying.repeats,
    paying.together,
    paying.keys,
    paying.unkeyed,
    paying.lifetimes,
    pacing.windows,
    pacing.waits,
    pacing.open_calls,
    pacing.permits,
    owners.leases_apart,
    owners.only_owners_send,
    owners.epochs_rise,
    durability.in_turn,
    offsets.commits,
    durability.read_back,
    offsets.one_chunk_each,
    durability.built_again,
    bounds.memory,
    bounds.ends_soon,
    bounds.no_secret,
)

LEFT_OUT: dict[str, str] = {
    "INV24": "the breaker that stops calls while nothing can be stored is not built yet (issue 6)",
}
"""Promises of parts that are not built yet, and why they can't be checked."""

FOUND_MAX = 1_000
"""Violations of one invariant that are kept; a broken run would have one a row."""


def check(history: History, finals: Finals | None = None, *, limits: Limits) -> Report:
    """Check every invariant that what was looked at allows; name the others and why not.

    What happened after an event `rebuilding` is not looked at: it is INV23's own run.
    """
    looked_at = finals or Finals()
    history = history.before("rebuilding")
    violations: list[Violation] = []
    checked: list[Invariant] = []
    skipped: dict[str, str] = {}
    for invariant in INVARIANTS:
        reason = _not_checkable(invariant, history, looked_at, limits)
        if reason is not None:
            skipped[invariant.code] = reason
            continue
        checked.append(invariant)
        violations += islice(invariant.check(history, looked_at, limits), FOUND_MAX)
    return Report(violations, checked, skipped, dict(LEFT_OUT), history)


def _not_checkable(
    invariant: Invariant, history: History, finals: Finals, limits: Limits
) -> str | None:
    missing = sorted(name for name in invariant.needs if getattr(finals, name) is None)
    if missing:
        return f"not looked at: {', '.join(missing)}"
    unsaid = sorted(name for name in invariant.speaks_of if not history.kind(name))
    if unsaid:
        return f"the history has no event {' and no event '.join(unsaid)}"
    unbounded = sorted(name for name in invariant.bounded_by if not getattr(limits, name))
    return f"no limit was named: {', '.join(unbounded)}" if unbounded else None
