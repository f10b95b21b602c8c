"""Epochs: the numbers of a partition's owners, each higher than all before it (fencing).

A new owner reads the last epoch in the partition's own changelog. Counting on from there is not enough:
an owner that was cut off before its first record arrived, and its successor, which did not see it, would
take the same number, and neither could be told from the other (tests/simulation, seed 38). The group
numbers its rounds of assignments, so that generation is part of the epoch, and leads it: whatever an
owner of an earlier generation still has on its way, its epoch is lower.
"""

from __future__ import annotations

RESTARTS = 1_000
"""Owners of one generation: a worker that starts again within its session keeps its partitions."""

ERA = 1_000_000 * RESTARTS
"""Epochs of one life of the group. A rebalance every minute for two years ends no era."""


def next_epoch(last: int, generation: int) -> int:
    """Return the epoch of an owner that was assigned in `generation`, where `last` was the one before.

    A generation below the last one's is of a group that was made anew, and begins an era: the caller
    has proven that it is a member, so it is no assignment that came late.
    """
    era = last // ERA
    epoch = era * ERA + generation * RESTARTS
    if epoch > last:
        return epoch
    if last - epoch < RESTARTS:
        return last + 1
    return (era + 1) * ERA + generation * RESTARTS
