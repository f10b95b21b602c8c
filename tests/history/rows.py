"""Rows: each ends once, as its play says, and the counts agree with the sheet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.history.calls import Calls
from tests.history.events import Event, History
from tests.history.finals import Finals, SheetRow
from tests.history.invariant import Limits, Violation, invariant
from tests.history.lives import EVER, Lives

COUNTS = ("completed", "failed", "skipped", "duplicates", "pending", "cancelled")


@invariant(
    "INV1",
    """Every row that was fed is in the sheet exactly once (rows of one id count as one), and
    nothing else is.""",
    needs={"sheet"},
)
def each_once(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV1."""
    fed: dict[str, list[Event]] = defaultdict(list)
    for event in history.kind("fed"):
        fed[event["row"]].append(event)
    wanted = set(fed) if finals.input_rows is None else {row for row, _ in finals.input_rows}
    found = Counter(row.row for row in finals.sheet or ())
    for row in sorted(wanted - found.keys()):
        yield Violation("INV1", f"row {row}", "fed, and not in the sheet", tuple(fed.get(row, ())))
    for row in sorted(found.keys() - wanted):
        yield Violation("INV1", f"row {row}", "in the sheet, and never fed")
    for row, times in found.items():
        if times > 1:
            why = f"{times} times in the sheet"
            yield Violation("INV1", f"row {row}", why, tuple(fed.get(row, ())))


@invariant(
    "INV2",
    """The counts that a run reports add up to its total and are those of the sheet; nothing is
    pending at the end unless the run was stopped; no event of the run counts more than that.""",
    needs={"report", "sheet"},
)
def totals(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV2."""
    report, sheet = finals.report or {}, finals.sheet or []
    subject = f"run {report.get('run_id', '')}"
    told = {name: int(report.get(name, 0)) for name in COUNTS}
    if sum(told.values()) != report["total"]:
        why = f"{_words(told)} add up to {sum(told.values())}, the total is {report['total']}"
        yield Violation("INV2", subject, why)
    if told["pending"] and report.get("state") not in ("stopped", "paused"):
        yield Violation("INV2", subject, f"{told['pending']} rows are pending at the end")
    counted = Counter(row.status for row in sheet)
    for status in ("completed", "failed", "skipped"):
        if counted[status] != told[status]:
            why = f"{told[status]} rows are reported as {status}, the sheet has {counted[status]}"
            yield Violation("INV2", subject, why)
    if finals.input_rows is not None and told["pending"] == 0:
        again = len(finals.input_rows) - len({row for row, _ in finals.input_rows})
        if told["duplicates"] != again:
            why = f"{told['duplicates']} duplicates are reported, the input has {again}"
            yield Violation("INV2", subject, why)
    yield from _events_of_run(finals, report, subject)


def _events_of_run(finals: Finals, report: Mapping[str, Any], subject: str) -> Iterator[Violation]:
    for record in (finals.topics or {}).get("runs.events", ()):
        value = record.value
        if not isinstance(value, dict) or value.get("run") != report.get("run_id"):
            continue
        counts = value.get("counts", {})
        ended = sum(int(counts.get(name, 0)) for name in COUNTS[:4])
        where = f'event "{value.get("kind")}" at runs.events/{record.partition}/{record.offset}'
        if ended > report["total"]:
            yield Violation("INV2", subject, f"{where}: {ended} rows ended of {report['total']}")
        elif value.get("kind") == "completed" and ended != report["total"] - report["pending"]:
            why = f"{where}: {ended} rows ended, the report says {report['total']}"
            yield Violation("INV2", subject, why)


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


@invariant(
    "INV3",
    """A row whose ending is durable is not worked on again in its run; only one that failed may be,
    by a later command.""",
    speaks_of={"entered"},
)
def endings_last(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV3."""
    lives = history.view(Lives)
    ended: dict[tuple[str, str], Event] = {}
    for event in history.kind("entered", "published"):
        place = (event["run"], event["row"])
        known = ended.get(place)
        if event["event"] == "entered":
            if known is None or known["status"] == "failed" or event["epoch"] > known["epoch"]:
                ended[place] = event
            continue
        if known is None or known["status"] == "failed" or event["epoch"] < known["epoch"]:
            continue  # of a lower epoch: refused wherever it comes
        tenure = lives.tenure("rows", known["partition"], known["epoch"])
        sure = EVER if tenure is None else lives.sure_until(tenure, limits.session_ms)
        if known["at"] < sure:
            why = (
                f'ended as "{known["status"]}", durably, and was published again by '
                f'{event["by"]} as "{event["status"]}"'
            )
            yield Violation("INV3", f"row {place[1]} of run {place[0]}", why, (known, event))


@invariant(
    "INV4",
    """Faults that can be mended change nothing: the sheet is the one that the same input gives
    without any fault. (A call of a tool whose provider honours no Idempotency-Key may have ended as
    "outcome unknown": its cell, and what follows from it, may be missing.)""",
    needs={"sheet", "twin"},
)
def as_calm(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV4."""
    calm = {row.row: row for row in finals.twin or ()}
    found = {row.row: row for row in finals.sheet or ()}
    entered = {event["row"]: event for event in history.kind("entered")}
    unknown = _unknown_outcomes(history)
    for row in sorted(calm.keys() | found.keys()):
        if row in unknown and row in calm and row in found:
            why = _other_cell(calm[row], found[row], only_present=True)
        else:
            why = _difference(calm.get(row), found.get(row))
        if why is not None:
            proof = (entered[row],) if row in entered else ()
            yield Violation("INV4", f"row {row}", why, proof)


def _difference(calm: SheetRow | None, found: SheetRow | None) -> str | None:
    if calm is None or found is None:
        return "only the run with faults has it" if calm is None else "only the calm run has it"
    if found.status != calm.status:
        reason = f" ({found.error})" if found.error else ""
        return f'"{found.status}"{reason}, in the calm run "{calm.status}"'
    if found.index != calm.index:
        return f"stands at index {found.index}, in the calm run at {calm.index}"
    return _other_cell(calm, found)


def _other_cell(calm: SheetRow, found: SheetRow, *, only_present: bool = False) -> str | None:
    for column in sorted(calm.cells.keys() | found.cells.keys()):
        one, other = found.cells.get(column), calm.cells.get(column)
        if one != other and not (only_present and one is None):
            return f"cell {column} is {one!r}, in the calm run {other!r}"
    return None


def _unknown_outcomes(history: History) -> set[str]:
    """Return the rows with a failed cell whose provider honours no Idempotency-Key.

    Also where nothing was sent: whoever takes a call over cannot tell.
    """
    calls = history.view(Calls)
    unsure = {
        event["receipt"] for event in history.kind("taken_over") if event["state"] == "failed"
    }
    unkeyed = {
        (event["row"], event["column"])
        for event in history.kind("asked")
        if any(not send.event["idempotent"] for send in calls.by_receipt.get(event["receipt"], ()))
        or (event["receipt"] in unsure and event["receipt"] not in calls.by_receipt)
    }
    return {
        row
        for (row, column), cell in _cells(history).items()
        if cell == "failed" and (row, column) in unkeyed
    }


def _cells(history: History) -> dict[tuple[str, str], str]:
    """Return how each cell was settled at last."""
    return {(event["row"], event["column"]): event["status"] for event in history.kind("cell")}


@invariant(
    "INV5",
    """Every cell holds what the provider answers to the question of its own row, never another
    row's answer.""",
    needs={"sheet", "input_rows", "cell_of", "columns"},
)
def own_cells(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV5."""
    inputs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row, values in finals.input_rows or ():
        if values not in inputs[row]:
            inputs[row].append(values)
    settled = history.view(_cells)
    for found in finals.sheet or ():
        if found.status == "skipped" or found.row not in inputs:
            continue  # one that was never fed is told by INV1
        missing = {
            column
            for column in finals.columns or ()
            if found.status != "completed" or settled.get((found.row, column)) == "failed"
        }
        wrong = [_wrong_cell(finals, found, values, missing) for values in inputs[found.row]]
        if all(why is not None for why in wrong):
            yield Violation("INV5", f"row {found.row}", str(wrong[0]))


def _wrong_cell(
    finals: Finals, found: SheetRow, values: dict[str, Any], may_miss: set[str]
) -> str | None:
    assert finals.cell_of is not None
    for column in finals.columns or ():
        cell = found.cells.get(column)
        if cell is None and column in may_miss:
            continue
        expected = finals.cell_of(values, column)
        if cell != expected:
            return f"cell {column} is {cell!r}; of its own input it would be {expected!r}"
    return None


@invariant(
    "INV6",
    """The columns of a row are worked out in the order of the play, each after the one before it is
    settled.""",
    needs={"columns"},
    speaks_of={"admitted"},
)
def columns_in_order(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV6."""
    order = {column: place for place, column in enumerate(finals.columns or ())}
    settled: dict[tuple[str, str, str], list[Event]] = {}
    for event in history.kind("admitted", "asked", "cell"):
        row = (event["by"], event["run"], event["row"])
        if event["event"] == "admitted":
            settled[row] = [event]
            continue
        place = order.get(event["column"])
        before = settled.get(row)
        if place is None or before is None:
            continue
        done = len(before) - 1
        if event["event"] == "cell":
            if place != done:
                why = f"column {event['column']} was settled as number {done + 1}, not {place + 1}"
                yield Violation("INV6", f"row {row[2]} of run {row[1]}", why, (*before, event))
            before.append(event)
        elif place > done:
            why = f"column {event['column']} asked although {place - done} before it were open"
            yield Violation("INV6", f"row {row[2]} of run {row[1]}", why, (*before, event))
