"""Durability: what must be safe before something else happens, and is read back at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tests.history.calls import Calls
from tests.history.events import Event, History
from tests.history.finals import Finals, TopicRecord
from tests.history.invariant import Limits, Violation, invariant
from tests.history.lives import Lives
from tests.history.paying import in_order
from tests.history.takeovers import RECEIPTS, settled_before

ROWS = "rowmill-rows-rows-changelog"
COMPACTED = (RECEIPTS, ROWS, "runs", "lanes")

Question = tuple[str, str, str]
"""Run, row, call."""


@invariant(
    "INV19",
    """Nothing is done before what it rests on is durable: no request leaves before its receipt says
    "running"; no row is told an answer before the receipt holds it; no row is entered as ended
    before it is published; no record counts as done before what it asked for is durable.""",
    speaks_of={"sent"},
)
def in_turn(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV19."""
    yield from _running_before_sent(history)
    yield from _kept_before_told(history, finals)
    yield from _published_before_entered(history)
    yield from _entered_before_done(history, finals)
    if finals.topics is not None:
        yield from _told_before_done(history, finals.topics)


def _running_before_sent(history: History) -> Iterator[Violation]:
    for lease in history.view(Calls).leases.values():
        sent, running = lease.sent, lease.running
        if sent is None or (running is not None and running["at"] <= sent["at"]):
            continue
        why = f"{sent['by']} sent before the running receipt was acknowledged"
        proof = in_order(event for event in (lease.claimed, sent, running) if event is not None)
        yield Violation("INV19", f"receipt {lease.receipt}", why, proof)


def _kept_before_told(history: History, finals: Finals) -> Iterator[Violation]:
    """A receipt may be durable without a `kept`: its owner died, or let its successor decide."""
    lives = history.view(Lives)
    stored = _completed_receipts(history, finals)
    found = settled_before(finals)
    kept: set[str] = set()
    answered: dict[str, Event] = {}
    for event in history.kind("kept", "heard", "told"):
        receipt = event["receipt"]
        if event["event"] == "kept" and event["state"] == "completed":
            kept.add(receipt)
        elif event["event"] == "heard" and event["outcome"] == "answered":
            answered[receipt] = event
        elif event["event"] == "told" and event["status"] == "completed" and receipt not in kept:
            heard = answered.get(receipt)
            durable = heard is not None and _unsaid(heard, event, lives)
            if stored is not None:
                # Whoever took the partition over may have read it there before its writer heard so.
                said = stored.get(receipt, event["at"] + 1) <= event["at"]
                durable = said or (durable and receipt in stored)
                past = found.get((receipt, event["epoch"]), ())
                durable = durable or any(state == "completed" for _, state in past)
            if not durable:
                why = f"{event['by']} told row {event['row']} an answer that was not durable yet"
                proof = (event,) if heard is None else (heard, event)
                yield Violation("INV19", f"receipt {receipt}", why, proof)


def _unsaid(heard: Event, told: Event, lives: Lives) -> bool:
    """Say whether who heard the answer may have kept it without saying so."""
    by, begin, end = heard["by"], heard["at"], told["at"]
    return bool(lives.death(by, begin, end) or lives.trouble(by, 0, end) or told["by"] != by)


def _completed_receipts(history: History, finals: Finals) -> dict[str, int] | None:
    """Return since when each completed receipt was acknowledged; 0 where nobody came to say."""
    if finals.topics is None or RECEIPTS not in finals.topics:
        return None
    written = _written(history, RECEIPTS)
    found: dict[str, int] = {}
    for record in finals.topics[RECEIPTS]:
        value = record.value
        if isinstance(value, dict) and value.get("receipt", {}).get("state") == "completed":
            said = written.get((record.partition, record.offset))
            since = 0 if said is None else said["at"]
            key = str(record.key)
            found[key] = min(since, found.get(key, since))
    return found


def _published_before_entered(history: History) -> Iterator[Violation]:
    published: set[tuple[str, str, str]] = set()
    for event in history.kind("published", "entered"):
        place = (event["by"], event["run"], event["row"])
        if event["event"] == "published":
            published.add(place)
        elif place not in published:
            why = f"{event['by']} entered its ending before it was on rows.completed"
            yield Violation("INV19", f"row {event['row']} of run {event['run']}", why, (event,))


def _entered_before_done(history: History, finals: Finals) -> Iterator[Violation]:
    """Of rows that were fed once: a copy, or one of a life that is over, is done without an ending."""
    fed: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in history.kind("fed"):
        fed[event["run"], event["row"]].append(event)
    copies: dict[tuple[str, str], int] = defaultdict(int)
    for record in (finals.topics or {}).get("rows.input", ()):
        if isinstance(record.value, dict):
            copies[str(record.value.get("run")), str(record.value.get("row"))] += 1
    entered: dict[tuple[str, str], Event] = {}
    for event in history.kind("entered"):
        entered.setdefault((event["run"], event["row"]), event)
    done = _first_done(history, "rows.input")
    for place, records in fed.items():
        ended = entered.get(place)
        if len(records) > 1 or copies[place] > 1 or ended is None:
            continue
        early = done.get((records[0]["partition"], records[0]["offset"]))
        if early is not None and early["at"] < ended["at"]:
            why = "its input counted as done before its ending was durable"
            yield Violation("INV19", f"row {place[1]} of run {place[0]}", why, (early, ended))


def _told_before_done(
    history: History, topics: dict[str, list[TopicRecord]]
) -> Iterator[Violation]:
    """A request is done once a result is durable, or a newer copy of it has its place (Q1)."""
    results = _since(history, "provider.results", topics)
    newest: dict[tuple[int, Question], int] = {}
    asks: dict[tuple[int, int], TopicRecord] = {}
    for record in topics.get("tool.requests", ()):
        question = _question(record.value)
        if question is not None and record.value.get("kind", "ask") == "ask":
            asks[record.partition, record.offset] = record
            place = (record.partition, question)
            newest[place] = max(record.offset, newest.get(place, -1))
    aside = {event["key"] for event in history.kind("written") if _is_aside(event)}
    for (partition, offset), done in _first_done(history, "tool.requests").items():
        ask = asks.get((partition, offset))
        question = None if ask is None else _question(ask.value)
        if question is None or newest[partition, question] > offset:
            continue
        if f"tool.requests/{partition}/{offset}" in aside:
            continue
        if results.get(question, done["at"] + 1) > done["at"]:
            why = (
                f"the request {question[2]} of row {question[1]} (tool.requests/{partition}/"
                f"{offset}) counted as done before a result was durable"
            )
            yield Violation("INV19", f"run {question[0]}", why, (done,))


def _is_aside(event: Event) -> bool:
    return bool(event["topic"] == "rows.dead-letter")


def _question(value: Any) -> Question | None:
    if not isinstance(value, dict) or "call" not in value:
        return None
    return str(value.get("run")), str(value.get("row")), str(value["call"])


def _since(
    history: History, topic: str, topics: dict[str, list[TopicRecord]]
) -> dict[Question, int]:
    """Return since when the first result of each question was durable; 0 where nobody said so."""
    written = _written(history, topic)
    found: dict[Question, int] = {}
    for record in topics.get(topic, ()):
        question = _question(record.value)
        if question is not None:
            event = written.get((record.partition, record.offset))
            since = 0 if event is None else event["at"]
            found[question] = min(since, found.get(question, since))
    return found


def _written(history: History, topic: str) -> dict[tuple[int, int], Event]:
    return {
        (event["partition"], event["offset"]): event
        for event in history.kind("written")
        if event["topic"] == topic
    }


def _first_done(history: History, topic: str) -> dict[tuple[int, int], Event]:
    found: dict[tuple[int, int], Event] = {}
    for event in history.kind("done"):
        if event["topic"] == topic:
            found.setdefault((event["partition"], event["offset"]), event)
    return found


@invariant(
    "INV21",
    """What the broker acknowledged is read back at the end, under its key; in a compacted topic, a
    later record of that key may stand for it.""",
    needs={"topics"},
    speaks_of={"written"},
)
def read_back(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV21."""
    topics = finals.topics or {}
    for topic, events in _acknowledged(history).items():
        if topic not in topics:
            continue
        there = {(record.partition, record.offset): record for record in topics[topic]}
        last: dict[str | None, int] = {}
        for record in topics[topic]:
            last[record.key] = max(record.offset, last.get(record.key, -1))
        for event, key in events:
            place = (event["partition"], event["offset"])
            found = there.get(place)
            if found is None and topic in COMPACTED and last.get(key, -1) > event["offset"]:
                continue
            if found is None or (found.key or "") != key:
                what = "is not there" if found is None else f"has the key {found.key!r}"
                where = f"{topic}/{place[0]}/{place[1]}"
                why = f"acknowledged with the key {key!r}, and at the end it {what}"
                yield Violation("INV21", f"record {where}", why, (event,))
    yield from _endings_there(history, topics)


def _acknowledged(history: History) -> dict[str, list[tuple[Event, str]]]:
    found: dict[str, list[tuple[Event, str]]] = defaultdict(list)
    for event in history.kind("written"):
        found[event["topic"]].append((event, event["key"]))
    for name, topic in (("fed", "rows.input"), ("published", "rows.completed")):
        for event in history.kind(name):
            if event.get("offset", -1) >= 0:
                found[topic].append((event, event["row"]))
    return found


def _endings_there(history: History, topics: dict[str, list[TopicRecord]]) -> Iterable[Violation]:
    """What was told to be durable is in the changelogs: endings of rows, final receipts."""
    keys = {topic: {record.key for record in topics.get(topic, ())} for topic in (ROWS, RECEIPTS)}
    for event in history.kind("entered") if ROWS in topics else ():
        if f"{event['run']}/{event['row']}" not in keys[ROWS]:
            why = f"{event['by']} said that its ending was durable; the changelog has none"
            yield Violation("INV21", f"row {event['row']} of run {event['run']}", why, (event,))
    for event in history.kind("kept") if RECEIPTS in topics else ():
        if event["receipt"] not in keys[RECEIPTS]:
            why = f"{event['by']} said that it was durable; the changelog has nothing of it"
            yield Violation("INV21", f"receipt {event['receipt']}", why, (event,))


@invariant(
    "INV23",
    """The topics hold everything: receipts and sheet that are built again from them alone are equal,
    and no provider is called.""",
    needs={"rebuilt"},
)
def built_again(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV23."""
    rebuilt = finals.rebuilt
    assert rebuilt is not None
    if rebuilt.calls:
        why = f"{rebuilt.calls} requests reached the provider while all was built again"
        yield Violation("INV23", "receipts", why)
    if not rebuilt.receipts_equal:
        yield Violation("INV23", "receipts", "built from their changelog they are others")
    if not rebuilt.sheet_equal:
        yield Violation("INV23", "sheet", "built from rows.completed it is another")
