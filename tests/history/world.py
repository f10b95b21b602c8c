"""What a generated history happens in: a log that numbers records, processes that come and go."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.history.events import Event
from tests.history.finals import TopicRecord
from tests.history.lives import MS

BEGIN = 1_000_000 * MS
SESSION = 10_000 * MS
LEASE = 20_000 * MS
PARTITIONS = 4


@dataclass(eq=False)
class Record:
    """A record on its way: `offset` is known once all are in order."""

    at: int
    topic: str
    partition: int
    key: str
    value: Any
    epoch: int = 0
    offset: int = -1


@dataclass(frozen=True)
class Shift:
    """A dispatch process that owns all partitions from `begin` to `end`.

    `fate`: how it ends: `killed`, `frozen` for longer than its lease, or `works` to the end.
    """

    by: str
    instance: str
    epoch: int
    begin: int
    end: int
    fate: str = "works"

    @property
    def thaws(self) -> int:
        """When a frozen one goes on."""
        return self.end + LEASE + 5_000 * MS


@dataclass
class Log:
    """All events and records of a history."""

    events: list[Event] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def note(self, at: int, by: str, event: str, **fields: Any) -> None:
        """Add an event. A `record` among its fields becomes its offset."""
        self.events.append({"at": at, "event": event, "by": by, **fields})

    def write(self, at: int, by: str, topic: str, key: str, value: Any, epoch: int = 0) -> Record:
        """Add a record that is acknowledged at that time, and the event that says so."""
        record = Record(at, topic, partition_of(key), key, value, epoch)
        self.records.append(record)
        self.note(
            at, by, "written", topic=topic, partition=record.partition, key=key, record=record
        )
        return record

    def done(self, at: int, by: str, record: Record) -> None:
        """Say that what a record asked for is durable."""
        self.note(at, by, "done", topic=record.topic, partition=record.partition, record=record)

    def number(self) -> None:
        """Put all in order, and give records their offsets."""
        counts: dict[tuple[str, int], int] = defaultdict(int)
        self.records.sort(key=lambda record: record.at)
        for record in self.records:
            record.offset = counts[record.topic, record.partition]
            counts[record.topic, record.partition] += 1
        for event in self.events:
            if "record" in event:
                event["offset"] = event.pop("record").offset
        self.events.sort(key=lambda event: int(event["at"]))

    def topics(self) -> dict[str, list[TopicRecord]]:
        """Return the records as they are read back."""
        found: dict[str, list[TopicRecord]] = defaultdict(list)
        for one in self.records:
            found[one.topic].append(
                TopicRecord(one.partition, one.offset, one.key, one.value, one.epoch)
            )
        return dict(found)


def partition_of(key: str) -> int:
    """Return a key's partition: a row's ending shares its row's."""
    name = key.split("/")[1] if "/" in key else key
    return int(name[-4:], 16) % PARTITIONS


def shifts(chance: random.Random, until: int, every: int) -> list[Shift]:
    """Return one dispatch process after the other up to `until`, each for about `every` ns."""
    found: list[Shift] = []
    begin, instance, number = BEGIN, "instance-0", 1
    while True:
        end = begin + round(every * chance.uniform(0.5, 1.5))
        by = f"dispatch-{100 + number}"
        if end >= until:
            found.append(Shift(by, instance, number, begin, until + 600_000 * MS))
            return found
        fate = chance.choice(("killed", "killed", "frozen"))
        shift = Shift(by, instance, number, begin, end, fate)
        found.append(shift)
        number += 1
        begin = end + 1_500 * MS  # the same instance, started again
        if fate == "frozen":  # another one, once the session is over
            begin, instance = end + SESSION + 400 * MS, f"instance-{number}"
