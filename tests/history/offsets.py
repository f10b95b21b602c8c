"""Offsets: what is committed is done, and each finished row is in one chunk of the sheet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.history.events import Event, History
from tests.history.finals import Finals
from tests.history.invariant import Limits, Violation, invariant

Place = tuple[str, int]
"""A topic and partition, or a sheet and partition."""


@invariant(
    "INV20",
    """A worker tells the broker to read on at an offset only once everything before it is done; that
    offset never goes back; at the end it is the end of the log.""",
    speaks_of={"committed"},
)
def commits(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV20."""
    done: dict[Place, list[Event]] = defaultdict(list)
    for event in history.kind("done"):
        done[event["topic"], event["partition"]].append(event)
    committed: dict[Place, list[Event]] = defaultdict(list)
    for event in history.kind("committed"):
        committed[event["topic"], event["partition"]].append(event)
    known = _known_offsets(history, finals)
    for place, events in committed.items():
        yield from _past_open(place, events, done.get(place, []), known.get(place))
    yield from _falling(history)
    yield from _short_of_the_end(finals, committed)


@dataclass
class _Known:
    """Offsets that exist. `complete`: the topic was read at the end, so others do not."""

    lowest: int
    offsets: frozenset[int] | None = None


def _known_offsets(history: History, finals: Finals) -> dict[Place, _Known]:
    known: dict[Place, _Known] = {}
    for topic, records in (finals.topics or {}).items():
        offsets: dict[int, set[int]] = defaultdict(set)
        for record in records:
            offsets[record.partition].add(record.offset)
        for partition, found in offsets.items():
            known[topic, partition] = _Known(min(found), frozenset(found))
    for event in history.kind("written", "fed", "done"):
        place = (event.get("topic", "rows.input"), event["partition"])
        if place not in known:
            known[place] = _Known(event["offset"])
        elif known[place].offsets is None:
            known[place].lowest = min(known[place].lowest, event["offset"])
    return known


def _past_open(
    place: Place, committed: list[Event], done: list[Event], known: _Known | None
) -> Iterator[Violation]:
    """Walk the log with the commits: below each, everything that exists was done before it."""
    next_ = known.lowest if known else committed[0]["offset"]
    exists = known.offsets if known else None
    finished: set[int] = set()
    waiting = iter(done)
    one = next(waiting, None)
    for event in committed:
        while one is not None and one["at"] <= event["at"]:
            finished.add(one["offset"])
            one = next(waiting, None)
        while next_ < event["offset"]:
            if next_ not in finished and (exists is None or next_ in exists):
                later = [d for d in done if d["offset"] == next_ and d["at"] > event["at"]]
                why = (
                    f"{event['by']} committed offset {event['offset']} while offset {next_} was "
                    "not done"
                )
                yield Violation("INV20", _named(place), why, (event, *later[:1]))
                next_ = event["offset"]
                break
            finished.discard(next_)
            next_ += 1


def _falling(history: History) -> Iterator[Violation]:
    """A worker's commits rise, and begin above all that was known when it took the partition.

    A commit that a stopped process tells of late is no fall: the broker took it before.
    """
    highest: dict[Place, Event] = {}
    floors: dict[tuple[str, str, int], Event] = {}
    topics: dict[int, set[str]] = defaultdict(set)
    for event in history.kind("taken", "committed"):
        by, partition = event["by"], event["partition"]
        if event["event"] == "taken":
            for topic in topics[partition]:
                floors[by, topic, partition] = highest[topic, partition]
            continue
        topic = event["topic"]
        topics[partition].add(topic)
        floor = floors.get((by, topic, partition))
        if floor is not None and event["offset"] < floor["offset"]:
            why = f"{by} committed offset {event['offset']} after {floor['offset']} was committed"
            yield Violation("INV20", _named((topic, partition)), why, (floor, event))
        floors[by, topic, partition] = event
        known = highest.get((topic, partition))
        if known is None or event["offset"] > known["offset"]:
            highest[topic, partition] = event


def _short_of_the_end(finals: Finals, committed: dict[Place, list[Event]]) -> Iterator[Violation]:
    if finals.ends is None or finals.committed is None:
        return
    for topic, offsets in finals.committed.items():
        for partition, end in finals.ends.get(topic, {}).items():
            if offsets.get(partition, 0) < end:
                last = committed.get((topic, partition), [])[-1:]
                why = f"at the end {offsets.get(partition, 0)} is committed; the log ends at {end}"
                yield Violation("INV20", _named((topic, partition)), why, tuple(last))


@dataclass
class _Written:
    """What one sheet has of one partition: exact spans, and spans that may overlap others."""

    exact: list[tuple[int, int, Event]] = field(default_factory=list)
    unsure: list[tuple[int, int, Event]] = field(default_factory=list)


@invariant(
    "INV22",
    """Each finished row is in exactly one chunk (rows written to a sheet in one transaction), and the
    chunks of a partition follow each other without a gap.""",
    speaks_of={"wrote"},
)
def one_chunk_each(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV22."""
    sheets = _spans(history)
    for (sheet, partition), written in sheets.items():
        subject = f"partition {partition} of rows.completed in sheet {sheet}"
        yield from _joined(subject, written)
    first: dict[tuple[str, int, int], Event] = {}
    for event in history.kind("wrote"):
        if event["had"]:
            continue
        for run, row, _, partition, offset in event["rows"]:
            known = first.setdefault((event["sheet"], partition, offset), event)
            if known is not event:
                why = f"its record rows.completed/{partition}/{offset} is in two chunks"
                yield Violation("INV22", f"row {row} of run {run}", why, (known, event))
    if finals.topics is not None and len({sheet for sheet, _ in sheets}) == 1:
        yield from _left_out(history, finals, sheets)


def _spans(history: History) -> dict[Place, _Written]:
    """Return the spans of each sheet and partition.

    Unsure: the last chunk of a process that did not come to say how it ended (others are written
    again until they end), and a chunk of which the sheet had a part before.
    """
    sheets: dict[Place, _Written] = defaultdict(_Written)
    last: dict[tuple[str, str], Event] = {}
    for event in history.kind("writing", "wrote"):
        last[event["by"], event["sheet"]] = event
        if event["event"] == "wrote":
            for partition, begin, end in event["spans"]:
                written = sheets[event["sheet"], partition]
                (written.unsure if event["had"] else written.exact).append((begin, end, event))
    for event in last.values():
        if event["event"] == "writing":
            for partition, begin, end in event["spans"]:
                sheets[event["sheet"], partition].unsure.append((begin, end, event))
    return sheets


def _joined(subject: str, written: _Written) -> Iterator[Violation]:
    former: tuple[int, int, Event] | None = None
    last_of: dict[str, tuple[int, int, Event]] = {}
    for span in written.exact:  # as they happened
        last = last_of.get(span[2]["by"])
        if last is not None and span[0] < last[1]:
            why = f"{_words(span)} was written after {_words(last)}, by the same process"
            yield Violation("INV22", subject, why, (last[2], span[2]))
        last_of[span[2]["by"]] = span
    for span in sorted(written.exact, key=lambda span: span[:2]):
        if former is not None and span[0] < former[1]:
            why = f"{_words(span)} and {_words(former)} overlap: rows between are in two chunks"
            yield Violation("INV22", subject, why, (former[2], span[2]))
        elif former is not None and not _covered(former[1], span[0], written.unsure):
            why = f"no chunk holds what lies between {_words(former)} and {_words(span)}"
            yield Violation("INV22", subject, why, (former[2], span[2]))
        if former is None or span[1] > former[1]:
            former = span


def _covered(begin: int, end: int, spans: list[tuple[int, int, Event]]) -> bool:
    for first, last, _ in sorted(spans, key=lambda span: span[:2]):
        if first <= begin < last:
            begin = last
    return begin >= end


def _words(span: tuple[int, int, Event]) -> str:
    return f"offsets {span[0]} to {span[1] - 1}"


def _left_out(
    history: History, finals: Finals, sheets: dict[Place, _Written]
) -> Iterator[Violation]:
    """Look for finished rows that a chunk passed over: in its span, and not among its rows."""
    rows = {
        (partition, offset)
        for event in history.kind("wrote")
        for _, _, _, partition, offset in event["rows"]
    }
    aside = {
        event["key"] for event in history.kind("written") if event["topic"] == "rows.dead-letter"
    }
    partitions = {partition: written for (_, partition), written in sheets.items()}
    for record in (finals.topics or {}).get("rows.completed", ()):
        written = partitions.get(record.partition)
        place = (record.partition, record.offset)
        if written is None or place in rows or not isinstance(record.value, dict):
            continue
        if f"rows.completed/{record.partition}/{record.offset}" in aside:
            continue
        for begin, end, event in written.exact:
            if begin <= record.offset < end:
                why = (
                    f"its record rows.completed/{record.partition}/{record.offset} lies in a "
                    "chunk's span, and is not among the chunk's rows"
                )
                yield Violation("INV22", f"row {record.key}", why, (event,))
                break


def _named(place: Place) -> str:
    return f"partition {place[1]} of {place[0]}"
