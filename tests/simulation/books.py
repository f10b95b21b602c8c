"""What the receipts' own records and the results say, checked against R2, R3 and R6 of behaviour.md.

The checker of histories (`tests/history`) judges what the processes did; this judges what they wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rowmill.streams.core.receipts import SENDS_ENDED_BY_DEATH_MAX, TOKENS_KEPT
from tests.history.calls import Calls
from tests.history.events import History
from tests.history.finals import Finals, TopicRecord
from tests.history.invariant import Violation
from tests.simulation.shape import RUNS, Shape
from tests.simulation.tables import CHANGELOG, EPOCH_KEY

Receipt = dict[str, Any]


@dataclass
class Book:
    """The records of one receipt that count: what came late, after the next epoch's beginning, is nobody's."""

    receipts: list[Receipt] = field(default_factory=list)


def violations(history: History, finals: Finals, shape: Shape) -> Iterator[Violation]:
    """Yield what is wrong with the receipts of a world."""
    books = _books(finals)
    for key, book in books.items():
        for receipt in book.receipts:
            yield from _ill_formed(key, receipt)
        yield from _overwritten(key, book)
    yield from _failed_early(history)
    if shape.force is not None:
        yield from _bought_twice(history, books, shape)
        yield from _told_an_older_one(history, finals, books, shape)


def _books(finals: Finals) -> dict[str, Book]:
    """Return each receipt's book; an empty receipt is a deletion."""
    assert finals.topics is not None
    records = finals.topics.get(CHANGELOG, [])
    owners: dict[int, int] = defaultdict(int)
    books: dict[str, Book] = defaultdict(Book)
    for record in records:
        epoch = record.epoch or 0
        if record.key is None or epoch < owners[record.partition]:
            continue
        if record.key == EPOCH_KEY:
            owners[record.partition] = epoch
        else:
            receipt = record.value["receipt"] if record.value else {}
            books[record.key].receipts.append(receipt)
    return books


def _ill_formed(key: str, receipt: Receipt) -> Iterator[Violation]:
    if not receipt:
        return
    state = receipt["state"]
    final = state in ("completed", "failed", "skipped")
    rules = {
        "has a lease exactly while it runs": bool(receipt["lease"]) == (state == "running"),
        "has a settling time exactly when final": (receipt["settled_wall_ms"] is not None) == final,
        "has a failure exactly when failed": bool(receipt["failure"]) == (state == "failed"),
        "has a purchase": receipt["purchase"] is not None,
        "counts three deaths at most": receipt["deaths"] <= SENDS_ENDED_BY_DEATH_MAX,
        "counts no more attempts than sends": receipt["attempts"] <= receipt["sends"],
        "remembers 16 commands at most": len(receipt["tokens"]) <= TOKENS_KEPT,
    }
    for rule, holds in rules.items():
        if not holds:
            yield Violation("R3", f"receipt {key}", f'this record breaks "{rule}": {receipt}')


def _overwritten(key: str, book: Book) -> Iterator[Violation]:
    """A completed receipt stands until another purchase opens, or it is deleted."""
    completed: Receipt = {}
    for receipt in book.receipts:
        if completed and receipt and receipt["purchase"] == completed["purchase"]:
            same = receipt["state"] == "completed" and receipt["output"] == completed["output"]
            if not same:
                why = f"a completed record was overwritten: {completed} by {receipt}"
                yield Violation("R6", f"receipt {key}", why)
        completed = receipt if receipt and receipt["state"] == "completed" else {}


def _failed_early(history: History) -> Iterator[Violation]:
    """A purchase fails once nobody sends it any more: a failure of an earlier send decides nothing."""
    calls = history.view(Calls)
    for kept in history.kind("kept"):
        if kept["state"] != "failed":
            continue
        for send in calls.by_receipt.get(kept["receipt"], ()):
            of_it = send.purchase == kept["purchase"] and send.at < kept["at"]
            if send.event["epoch"] > kept["epoch"]:
                continue  # what a former owner wrote is refused by its epoch
            if of_it and send.open_at(kept["at"]) and calls.death(send, kept["at"]) is None:
                why = f"failed by {kept['by']} while {send.by} was sending it"
                proof = (*send.story, kept)
                yield Violation("R6", f"receipt {kept['receipt']}", why, proof)


def _bought_twice(history: History, books: dict[str, Book], shape: Shape) -> Iterator[Violation]:
    """A command buys each question once, however often it is replayed."""
    sent = {(event["receipt"], event["purchase"]) for event in history.kind("sent")}
    for key, book in books.items():
        if shape.forgets or shape.ttl_s:
            return  # what is deleted is not remembered
        bought = {
            receipt["purchase"]: None
            for receipt in book.receipts
            if receipt and receipt["asker"]["run"] == RUNS[1] and (key, receipt["purchase"]) in sent
        }
        if len(bought) > 1 and not shape.stale_after_s:
            why = f"one forcing command bought it {len(bought)} times: {', '.join(bought)}"
            yield Violation("R2", f"receipt {key}", why)


def _told_an_older_one(
    history: History, finals: Finals, books: dict[str, Book], shape: Shape
) -> Iterator[Violation]:
    """Who asks with force hears what its own command bought (`all`; `failed` of a failure)."""
    assert finals.topics is not None
    for record in finals.topics.get("provider.results", []):
        told = record.value
        if told["run"] != RUNS[1] or _still_running(record):
            continue
        if shape.force == "failed" and told["status"] != "failed":
            continue
        receipts = [receipt for receipt in books[told["receipt"]].receipts if receipt]
        if not any(_of_command(receipt, told) for receipt in receipts):
            why = f"row {told['row']} of a forced run was told what its command did not buy: {told}"
            yield Violation("R2", f"receipt {told['receipt']}", why)


def _still_running(record: TopicRecord) -> bool:
    error = record.value["error"]
    return error is not None and error["kind"] == "still running elsewhere"


def _of_command(receipt: Receipt, told: dict[str, Any]) -> bool:
    served = any(token.startswith(f"{RUNS[1]}:") for token in receipt["tokens"])
    return served and receipt["state"] == told["status"]
