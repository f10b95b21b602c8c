"""What is written again after a takeover: only what came after a record of a higher epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from aiokafka import TopicPartition

from rowmill.streams.engine.readback import ReadBack
from rowmill.streams.engine.tables import EPOCH_HEADER

PLACE = TopicPartition("changelog", 3)


class Table:
    """Remembers what it is told to write again."""

    name = "receipts"

    def __init__(self) -> None:
        self.covered: list[tuple[int, str]] = []

    def write_again(self, partition: int, key: str) -> None:
        self.covered.append((partition, key))


def read_back(*records: tuple[str, int]) -> list[tuple[int, str]]:
    table = Table()
    reader = ReadBack({}, cast(Any, {"changelog": table}), {PLACE: 0})
    for offset, (key, epoch) in enumerate(records):
        headers = ((EPOCH_HEADER, b"%d" % epoch),)
        record = SimpleNamespace(key=key.encode(), headers=headers, offset=offset)
        reader._look_at(PLACE, record)
    return table.covered


def test_a_record_of_a_lower_epoch_after_one_of_a_higher_is_covered() -> None:
    assert read_back(("!epoch", 4), ("k", 4), ("k", 3)) == [(3, "k")]


def test_former_epochs_of_this_instance_came_in_their_time_and_are_left_alone() -> None:
    assert read_back(("!epoch", 4), ("k", 4), ("!epoch", 5), ("k", 5), ("l", 5)) == []


def test_a_late_beginning_of_an_epoch_is_never_written_again() -> None:
    assert read_back(("!epoch", 4), ("!epoch", 3)) == []
