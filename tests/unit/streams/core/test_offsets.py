from __future__ import annotations

import pytest

from rowmill.streams.core.offsets import PartitionOffsets


def delivered(offsets: list[int], start: int = 0) -> PartitionOffsets[str]:
    tracker: PartitionOffsets[str] = PartitionOffsets(start)
    for offset in offsets:
        tracker.deliver(offset, f"row {offset}")
    return tracker


def test_before_any_delivery_the_start_is_committable() -> None:
    assert PartitionOffsets[str](17).committable() == 17


def test_later_offsets_acknowledged_first_commit_nothing() -> None:
    """Faust commits 104 here and loses 100 (606)."""
    tracker = delivered([100, 101, 102, 103], start=100)
    for offset in (101, 102, 103):
        assert tracker.ack(offset)
    assert tracker.committable() == 100
    assert tracker.ack(100)
    assert tracker.committable() == 104


def test_a_fresh_group_with_its_head_open_commits_nothing() -> None:
    """Faust commits 15 here: nothing was committed, so it skips its guard."""
    tracker = delivered(list(range(15)))
    for offset in range(10, 15):
        tracker.ack(offset)
    assert tracker.committable() == 0


def test_offsets_that_were_never_delivered_are_not_waited_for() -> None:
    tracker = delivered([3, 4, 9, 50])
    for offset in (3, 4, 9):
        tracker.ack(offset)
    assert tracker.committable() == 50
    tracker.ack(50)
    assert tracker.committable() == 51


def test_an_acknowledgement_counts_once() -> None:
    tracker = delivered([0, 1])
    assert tracker.ack(0)
    assert not tracker.ack(0)
    assert tracker.committable() == 1


def test_an_offset_that_was_not_delivered_cannot_be_acknowledged() -> None:
    tracker = delivered([0, 1])
    assert not tracker.ack(2)
    tracker.deliver(2, "row 2")
    assert len(tracker) == 3


def test_a_closed_assignment_takes_no_acknowledgement() -> None:
    tracker = delivered([0, 1])
    tracker.ack(0)
    assert tracker.close() == ["row 1"]
    assert not tracker.ack(1)
    assert len(tracker) == 0


def test_the_head_is_what_the_watermark_waits_for() -> None:
    tracker = delivered([5, 6, 7], start=5)
    tracker.ack(6)
    assert tracker.head() == "row 5"
    tracker.ack(5)
    assert tracker.head() == "row 7"
    tracker.ack(7)
    assert tracker.head() is None


@pytest.mark.parametrize("offset", [2, 3])
def test_a_log_that_went_back_is_an_error(offset: int) -> None:
    tracker = delivered([2, 3], start=2)
    with pytest.raises(ValueError, match="went back"):
        tracker.deliver(offset, "again")


def test_a_start_below_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match="-1"):
        PartitionOffsets[str](-1)
