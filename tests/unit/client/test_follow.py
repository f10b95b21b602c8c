"""Progress is what the owners of the partitions said last; a cut-off owner says nothing."""

from __future__ import annotations

import pytest

from rowmill.client.follow import Ending, Endings, Indexes, Tallies
from rowmill.client.progress import Speed
from rowmill.streams.adapters.log_reader import LogRecord
from rowmill.streams.core.accounting import Counts
from rowmill.streams.core.commands import Command
from rowmill.topics.codec import encode
from rowmill.topics.contracts import RowEntry


def entry(
    completed: int, *, partition: int = 0, epoch: int = 1, run: str = "r", index: int = 0
) -> LogRecord:
    value = RowEntry(
        epoch=epoch, run=run, life=1, row="x", index=index, status="completed",
        counts=Counts(completed=completed).to_json(),
    )  # fmt: skip
    headers = (("rowmill_epoch", str(epoch).encode()),)
    return LogRecord(partition, 0, f"{run}/x{completed}", encode(value), 0, headers)


def test_counts_are_the_sum_of_the_newest_of_each_partition() -> None:
    tallies = Tallies()
    for record in (entry(1), entry(2), entry(5, partition=3), entry(9, run="other")):
        tallies.apply(record)
    assert tallies.counts("r").completed == 7
    assert tallies.counts("other").completed == 9
    assert tallies.counts("nobody") == Counts()


def test_a_former_owners_late_record_is_ignored() -> None:
    tallies = Tallies()
    tallies.apply(entry(2, epoch=2))
    assert tallies.apply(entry(9, epoch=1)) is None
    assert tallies.counts("r").completed == 2


def test_a_successor_holds_even_where_it_knows_of_fewer_rows() -> None:
    tallies = Tallies()
    tallies.apply(entry(5, epoch=1))
    tallies.apply(entry(4, epoch=2))
    assert tallies.counts("r").completed == 4


def test_an_entry_that_is_written_again_brings_no_old_counts() -> None:
    tallies = Tallies()
    tallies.apply(entry(5))
    tallies.apply(entry(3))
    assert tallies.counts("r").completed == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("!epoch", b'{"epoch":3}'),
        ("r/x", None),
        ("r/x", b"{"),
        ("r/x", b'{"counts":1}'),
        ("r", b"{}"),
    ],
)
def test_what_is_no_entry_changes_nothing(key: str, value: bytes | None) -> None:
    tallies = Tallies()
    assert tallies.apply(LogRecord(0, 0, key, value, 0, ())) is None
    assert tallies.counts("r") == Counts()


def test_only_the_run_that_is_followed_is_read() -> None:
    tallies = Tallies()
    assert tallies.apply(entry(1, run="other"), "r") is None
    found = tallies.apply(entry(1, index=7), "r")
    assert found is not None
    assert found.index == 7


def test_missing_rows_are_named_up_to_ten() -> None:
    endings = Indexes()
    for index in range(20_000):
        if index not in (0, 9_999):
            endings.add(index)
    assert endings.missing(20_000) == [0, 9_999]
    assert endings.missing(20_100) == [0, 9_999, *range(20_000, 20_008)]
    assert Indexes().missing(3) == [0, 1, 2]


def ended(index: int, status: str, *, life: int = 1, command: int = 0) -> Ending:
    return Ending(counts={}, index=index, life=life, status=status, command=command)


@pytest.mark.behaviour("D3")
def test_a_retry_is_done_once_every_failed_row_ended_under_its_command() -> None:
    endings = Endings(life=2, command=Command("failed", 1))
    for index, status in enumerate(["completed", "failed", "failed", "skipped"]):
        endings.add(ended(index, status))
    assert (endings.retried, endings.failed) == (2, 0)
    endings.add(ended(1, "completed", life=2, command=1))
    endings.add(ended(2, "failed", life=2, command=1))
    assert (endings.retried, endings.failed) == (0, 1)
    endings.add(ended(2, "failed", life=2, command=1))
    assert endings.retried == 0, "an entry that is written again changes nothing"
    assert endings.missing(5) == [4]


def test_a_command_that_retries_nothing_waits_for_no_failed_row() -> None:
    endings = Endings(life=2, command=Command())
    endings.add(ended(0, "failed"))
    assert (endings.retried, endings.failed) == (0, 0)


def test_speed_is_that_of_the_last_half_minute() -> None:
    speed = Speed()
    assert speed.rows_per_s() is None
    for second in range(100):
        speed.note(second, 0 if second < 60 else (second - 59) * 10)
    assert speed.rows_per_s() == pytest.approx(10, rel=0.01)
