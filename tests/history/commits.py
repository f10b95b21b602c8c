"""Chunks and commits of a generated history: they follow from what was published and done."""

from __future__ import annotations

from collections import defaultdict

from tests.history.events import Event
from tests.history.lives import MS
from tests.history.world import BEGIN, Log, Record, Shift

EVERY = 250 * MS
SHEET = "sqlite:///sheet.sqlite"
READ_BY = {"rows.input": "rows-1", "rows.completed": "sink-1"}


def add_chunks(log: Log, published: list[Record], last: int) -> None:
    """Let the sink write what was published, a chunk every 250 ms up to `last`."""
    waiting = sorted(published, key=lambda record: record.at)
    place, number = 0, 0
    ends: dict[int, int] = defaultdict(int)
    for at in range(BEGIN, last + 3 * EVERY, EVERY):
        rows: list[Record] = []
        while place < len(waiting) and waiting[place].at < at:
            rows.append(waiting[place])
            place += 1
        if not rows:
            continue
        number += 1
        spans = []
        for partition in sorted({record.partition for record in rows}):
            count = sum(record.partition == partition for record in rows)
            spans.append([partition, ends[partition], ends[partition] + count])
            ends[partition] += count
        told = {"sheet": SHEET, "chunk": number, "spans": spans}
        log.note(at + MS, "sink-1", "writing", **told)
        held = _rows_of(rows, spans)
        counts = {"written": len(rows), "ignored": 0, "had": 0}
        log.note(at + 9 * MS, "sink-1", "wrote", **told, rows=held, **counts)
        for record in rows:
            log.done(at + 9 * MS + 1, "sink-1", record)


def _rows_of(rows: list[Record], spans: list[list[int]]) -> list[list[object]]:
    """Offsets follow the order of publishing, so a span's rows are numbered from its begin."""
    next_ = {partition: begin for partition, begin, _ in spans}
    found: list[list[object]] = []
    for record in rows:
        value = record.value
        offset = next_[record.partition]
        found.append([value["run"], record.key, value["epoch"], record.partition, offset])
        next_[record.partition] += 1
    return found


def add_commits(log: Log, shifts: list[Shift]) -> dict[str, dict[int, int]]:
    """Let each owner commit what is done, every 250 ms. Returns: the last offsets by topic."""
    done: dict[tuple[str, int], set[int]] = defaultdict(set)
    next_: dict[tuple[str, int], int] = defaultdict(int)
    told: list[Event] = []
    due, position = BEGIN + EVERY, 0
    events = [event for event in log.events if event["event"] == "done"]
    last = log.events[-1]["at"] + EVERY
    while due <= last + EVERY:
        while position < len(events) and events[position]["at"] < due:
            event = events[position]
            done[event["topic"], event["partition"]].add(event["offset"])
            position += 1
        owner = next((s.by for s in shifts if s.begin < due < s.end - 20 * MS), None)
        for (topic, partition), offsets in done.items():
            by = READ_BY.get(topic, owner)
            begin = next_[topic, partition]
            if by is None:
                continue
            while next_[topic, partition] in offsets:
                offsets.discard(next_[topic, partition])
                next_[topic, partition] += 1
            if next_[topic, partition] > begin:
                where = {"topic": topic, "partition": partition}
                offset = next_[topic, partition]
                told.append({"at": due, "event": "committed", "by": by, **where, "offset": offset})
        due += EVERY
    log.events = sorted([*log.events, *told], key=lambda event: int(event["at"]))
    committed: dict[str, dict[int, int]] = defaultdict(dict)
    for (topic, partition), offset in next_.items():
        committed[topic][partition] = offset
    return dict(committed)
