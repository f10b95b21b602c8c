"""No two owners of a partition have one epoch, and a later one's is higher."""

from __future__ import annotations

from itertools import pairwise

from rowmill.streams.core.epochs import ERA, RESTARTS, next_epoch


def test_epochs_follow_the_generations_of_the_group() -> None:
    assert next_epoch(0, 1) == RESTARTS
    assert next_epoch(RESTARTS, 4) == 4 * RESTARTS
    assert next_epoch(57, 3) == 3 * RESTARTS, "57: as they were counted once"


def test_an_owner_that_its_successor_never_saw_has_a_lower_epoch_than_it() -> None:
    last = next_epoch(0, 3)
    unseen, successor = next_epoch(last, 4), next_epoch(last, 5)
    assert last < unseen < successor
    restarted = next_epoch(last, 3)
    assert last < restarted < next_epoch(last, 4), "nor does one that started again"


def test_a_worker_that_keeps_its_generation_counts_on_and_a_group_made_anew_begins_an_era() -> None:
    first = next_epoch(0, 7)
    again = next_epoch(first, 7)
    anew = next_epoch(again, 1)
    assert again == first + 1
    assert anew == ERA + RESTARTS
    epochs = [first, again, next_epoch(again, 7), anew, next_epoch(anew, 2), next_epoch(anew, 900)]
    assert all(lower < higher for lower, higher in pairwise(epochs))
