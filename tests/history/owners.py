"""Owners: leases, epochs, and that a former owner's late word changes nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.history.calls import Calls, Lease
from tests.history.events import History
from tests.history.finals import Finals, SheetRow, TopicRecord
from tests.history.invariant import Limits, Violation, invariant
from tests.history.lives import MS, Lives, Tenure, role_of
from tests.history.paying import in_order


@invariant(
    "INV16",
    """While a request is under way under a lease (the time for which its worker alone may send), no
    other lease of the same question begins, unless the holder counts as dead, or what it asks was
    answered by another way (a former owner's late answer), and it is bought anew.""",
    speaks_of={"claimed"},
)
def leases_apart(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV16."""
    lives = history.view(Lives)
    by_receipt: dict[str, list[Lease]] = defaultdict(list)
    for lease in history.view(Calls).leases.values():
        if lease.claimed is not None:
            by_receipt[lease.receipt].append(lease)
    ended: dict[tuple[str, str], int] = {}
    for event in history.kind("kept"):
        ended.setdefault((event["receipt"], event["purchase"]), event["at"])
    for receipt, leases in by_receipt.items():
        leases.sort(key=lambda lease: int(lease.claimed["at"]) if lease.claimed else 0)
        for place, lease in enumerate(leases[1:], start=1):
            for former in leases[:place]:
                if _overlap(former, lease, lives) and not _bought_anew(former, lease, ended):
                    why = (
                        f"{lease.by} claimed it while the request of {former.by} was under way "
                        "and its lease had not run out"
                    )
                    proof = [former.claimed, former.sent, *former.renewed, former.heard]
                    proof += [lease.claimed, lease.sent]
                    told = in_order(event for event in proof if event is not None)
                    yield Violation("INV16", f"receipt {receipt}", why, told)


def _overlap(former: Lease, lease: Lease, lives: Lives) -> bool:
    """Say whether `lease` was claimed while `former` was in force.

    Only a lease that something was sent under is in force. A claim under a lower epoch is a former
    owner's: it is refused, and counts only where it sent.
    """
    if former.sent is None or former.claimed is None or lease.claimed is None:
        return False
    if lease.claimed["epoch"] < former.claimed["epoch"] and lease.sent is None:
        return False
    at = int(lease.claimed["at"])
    heard = former.heard is not None and former.heard["at"] <= at
    if heard or former.over_at(at):
        return False
    return lives.death(former.by, former.claimed["at"], at) is None


def _bought_anew(former: Lease, lease: Lease, ended: dict[tuple[str, str], int]) -> bool:
    """Say whether `lease` is of another purchase, and that of `former` had ended by then."""
    if former.claimed is None or lease.claimed is None:
        return False
    purchase = former.claimed["purchase"]
    at = ended.get((former.receipt, purchase))
    other = lease.claimed["purchase"] != purchase
    return other and at is not None and at <= lease.claimed["at"]


@invariant(
    "INV17",
    """Nobody sends once the own lease has run out, nor once another worker has taken over the
    question's partition.""",
    speaks_of={"sent"},
)
def only_owners_send(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV17."""
    calls, lives = history.view(Calls), history.view(Lives)
    for sends in calls.by_key.values():
        for send in sends:
            ends = send.lease.expires(send.at)
            if send.at >= ends:
                why = f"{send.by} sent {(send.at - ends) / MS:,.3f} ms after its lease had run out"
                yield Violation("INV17", f"key {send.key}", why, tuple(send.story[:2]))
            partition = calls.partition_of.get(send.receipt, -1)
            tenure = lives.tenure("dispatch", partition, send.event["epoch"])
            later = _successor(tenure, send.at)
            if tenure is not None and later is not None:
                why = f"{send.by} sent although {later.by} owned partition {partition} by then"
                proof = (tenure.event, later.event, send.event)
                yield Violation("INV17", f"key {send.key}", why, in_order(proof))


def _successor(tenure: Tenure | None, at: int) -> Tenure | None:
    """Return another process's tenure that had followed by then."""
    follows = None if tenure is None else tenure.next
    while follows is not None and tenure is not None and follows.by == tenure.by:
        follows = follows.next
    return None if follows is None or follows.begin >= at else follows


@invariant(
    "INV18",
    """Each owner of a partition has a higher number (epoch) than all before it, and the word of a
    lower one never replaces that of a higher: the sheet shows, of each row, the last word of the
    highest writer; a worker that is not in trouble ends nothing in a partition that went to
    another. (The owner may settle an open call by a former owner's late answer, in its own name.)""",
    speaks_of={"taken"},
)
def epochs_rise(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV18."""
    lives = history.view(Lives)
    for (role, partition), tenures in lives.tenures.items():
        if all(tenure.epoch == 0 for tenure in tenures):
            continue  # a role without tables
        yield from _not_above(lives, role, partition, tenures)
    yield from _stale_endings(history, lives)
    if finals.topics is not None and finals.sheet is not None:
        yield from _sheet_of_lower(finals.topics.get("rows.completed", []), finals.sheet)


def _not_above(
    lives: Lives, role: str, partition: int, tenures: list[Tenure]
) -> Iterator[Violation]:
    highest = tenures[0]
    for tenure in tenures[1:]:
        if tenure.epoch > highest.epoch:
            highest = tenure
            continue
        # One that stood still may say late that it once had taken it; never under an equal number.
        late = lives.trouble(tenure.by, highest.begin - 60_000 * MS, tenure.begin) is not None
        if tenure.epoch < highest.epoch and late and tenure.by != highest.by:
            continue
        why = (
            f"{tenure.by} took it under epoch {tenure.epoch} after {highest.by} had under "
            f"{highest.epoch}"
        )
        proof = (highest.event, tenure.event)
        yield Violation("INV18", f"partition {partition} of {role}", why, proof)


def _stale_endings(history: History, lives: Lives) -> Iterator[Violation]:
    places = history.view(Calls).partition_of
    for event in history.kind("kept", "entered"):
        is_row = event["event"] == "entered"
        partition = event["partition"] if is_row else places.get(event["receipt"], -1)
        tenure = lives.tenure(role_of(event["by"]), partition, event["epoch"])
        later = _successor(tenure, event["at"])
        if tenure is None or later is None:
            continue
        if lives.trouble(event["by"], tenure.begin, event["at"]) is None:
            subject = f"row {event['row']}" if is_row else f"receipt {event['receipt']}"
            why = (
                f"{event['by']} ended it under epoch {event['epoch']} after {later.by} had taken "
                f"partition {partition} under {later.epoch}"
            )
            yield Violation("INV18", subject, why, in_order((tenure.event, later.event, event)))


def _sheet_of_lower(records: list[TopicRecord], sheet: list[SheetRow]) -> Iterator[Violation]:
    """Compare the sheet with the last word of the highest writer on `rows.completed`."""
    winners: dict[str, tuple[tuple[int, int, int], TopicRecord]] = {}
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        value = record.value
        if not isinstance(value, dict) or value.get("kind", "row") != "row":
            continue
        writer = _writer(value)
        if writer is None:
            continue
        known = winners.get(value["row"])
        if known is None or writer >= known[0]:
            winners[value["row"]] = (writer, record)
    for row in sheet:
        if row.row not in winners:
            continue
        writer, record = winners[row.row]
        if row.status != record.value["status"] or not _same_cells(row, record.value):
            why = (
                f'the sheet says "{row.status}" {row.cells}; the highest writer (run {writer[0]}, '
                f"life {writer[1]}, epoch {writer[2]}) said at rows.completed/{record.partition}/"
                f'{record.offset} "{record.value["status"]}" {_values(record.value)}'
            )
            yield Violation("INV18", f"row {row.row}", why)


def _writer(value: dict[str, Any]) -> tuple[int, int, int] | None:
    try:
        return int(value["run_number"]), int(value["life"]), int(value["epoch"])
    except (KeyError, TypeError, ValueError):
        return None


def _values(value: dict[str, Any]) -> dict[str, Any]:
    return {name: cell.get("value") for name, cell in value.get("cells", {}).items()}


def _same_cells(row: SheetRow, value: dict[str, Any]) -> bool:
    said = _values(value)
    return all(_same(row.cells[name], said[name]) for name in said if name in row.cells)


def _same(cell: Any, said: Any) -> bool:
    """A sheet may keep a number as its text."""
    return bool(cell == said or cell == json.dumps(said))
