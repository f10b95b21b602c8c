"""A realistic history without a broken promise: rows, two paid columns, retries, kills, freezes.

It is made up, not recorded: of any size within seconds, and the same for the same number. It measures
the checker, and shows that it raises no false alarm.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.history.commits import add_chunks, add_commits
from tests.history.events import Event
from tests.history.finals import Finals, Rebuilt, SheetRow
from tests.history.invariant import Limits, Window
from tests.history.lives import MS
from tests.history.world import BEGIN, LEASE, PARTITIONS, Log, Record, Shift, shifts

RUN = "run-1"
RECEIPTS = "rowmill-dispatch-receipts-changelog"
ENTRIES = "rowmill-rows-rows-changelog"
COLUMNS = {"first": "free", "second": "paced"}
ROW_EVERY = 16 * MS
"""Slower than the lanes, so that what waits after an outage is worked off."""

APART = {"free": 5 * MS, "paced": 11 * MS}
"""Least time between two sends of a lane."""

LIMITS = Limits(
    windows={"paced": (Window(100, 1_000),)},
    concurrency={"paced": 20, "free": 24},
    key_lifetime_ms={"free.first": 86_400_000, "paced.second": 86_400_000},
)


@dataclass(frozen=True)
class Generated:
    """A history, what it left behind, and the limits it keeps."""

    events: list[Event]
    finals: Finals
    limits: Limits


@dataclass(frozen=True)
class _Question:
    row: str
    column: str
    lane: str
    receipt: str
    purchase: str
    key: str
    partition: int
    request: Record

    @property
    def call(self) -> dict[str, Any]:
        return {"run": RUN, "row": self.row, "call": f"{self.column}/0"}


class _Story:
    def __init__(self, rows: int, rng_seed: int, outage_every_s: float) -> None:
        self.chance = random.Random(rng_seed)
        self.log = Log()
        self.rows = rows
        until = BEGIN + rows * ROW_EVERY
        self.shifts = shifts(self.chance, until, round(outage_every_s * 1000) * MS)
        self.free_at = dict.fromkeys(APART, BEGIN)
        self.sheet: list[SheetRow] = []
        self.input_rows: list[tuple[str, dict[str, Any]]] = []
        self.published: list[Record] = []
        self.ids = 0

    def id(self) -> str:
        self.ids += 1
        return f"{self.ids * 0x9E3779B97F4A7C15 % (1 << 64):016x}"

    def soon(self, most_ms: float) -> int:
        return round(self.chance.uniform(0.2, most_ms) * MS)

    # --- processes -------------------------------------------------------------------------------

    def tell_lives(self) -> None:
        for by in ("rows-1", "sink-1"):
            self._begin(by, by, BEGIN - 5 * MS, epoch=0 if by == "sink-1" else 1)
        for shift in self.shifts:
            self._begin(shift.by, shift.instance, shift.begin - 5 * MS, shift.epoch)
            if shift.fate == "killed":
                self.log.note(shift.end + 3 * MS, "runner-1", "killed", target=shift.by)
            elif shift.fate == "frozen":
                self.log.note(shift.end, "runner-1", "frozen", target=shift.by)
                self.log.note(shift.thaws - 1, "runner-1", "thawed", target=shift.by)
                lost = list(range(PARTITIONS))
                self.log.note(shift.thaws + 90 * MS, shift.by, "given_up", partitions=lost)

    def _begin(self, by: str, instance: str, at: int, epoch: int) -> None:
        role = by.partition("-")[0]
        self.log.note(at - 900 * MS, by, "started", role=role, instance=instance)
        for partition in range(PARTITIONS):
            self.log.note(at + partition, by, "taken", partition=partition, epoch=epoch)

    # --- rows ------------------------------------------------------------------------------------

    def tell_rows(self) -> None:
        for index in range(self.rows):
            at = BEGIN + index * ROW_EVERY
            values = {"id": f"row {index}"}
            if self.input_rows and self.chance.random() < 0.02:
                self._duplicate(self.chance.choice(self.input_rows), index, at)
            else:
                self._row(self.id(), values, index, at)

    def _fed(self, row: str, values: dict[str, Any], index: int, at: int) -> Record:
        self.input_rows.append((row, values))
        record = Record(
            at, "rows.input", int(row[-4:], 16) % PARTITIONS, row, {"run": RUN, "row": row}
        )
        self.log.records.append(record)
        where = {"partition": record.partition, "record": record}
        self.log.note(at, "main-1", "fed", run=RUN, row=row, index=index, **where)
        return record

    def _duplicate(self, known: tuple[str, dict[str, Any]], index: int, at: int) -> None:
        row, values = known
        record = self._fed(row, values, index, at)
        self.log.write(at + 9 * MS, "rows-1", ENTRIES, f"{RUN}/{row}/{index}", {}, epoch=1)
        self.log.done(at + 9 * MS, "rows-1", record)

    def _row(self, row: str, values: dict[str, Any], index: int, at: int) -> None:
        fed = self._fed(row, values, index, at)
        told = {"run": RUN, "row": row, "index": index}
        at += self.soon(8)
        self.log.note(at, "rows-1", "admitted", **told, partition=fed.partition)
        cells = {}
        for column, lane in COLUMNS.items():
            at = self._column(row, column, lane, at + self.soon(1))
            cells[column] = cell_of(values, column)
        told |= {"status": "completed", "epoch": 1, "partition": fed.partition}
        value = {"run": RUN, "run_number": 0, "life": 1, "epoch": 1, "row": row}
        value |= {"status": "completed", "cells": {name: {"value": v} for name, v in cells.items()}}
        at += self.soon(5)
        record = self.log.write(at, "rows-1", "rows.completed", row, value)
        self.published.append(record)
        self.log.note(at + 1, "rows-1", "published", **told, record=record)
        at += self.soon(5)
        self.log.write(at, "rows-1", ENTRIES, f"{RUN}/{row}", {"status": "completed"}, epoch=1)
        self.log.note(at + 1, "rows-1", "entered", **told)
        self.log.done(at + 2, "rows-1", fed)
        self.sheet.append(SheetRow(row, index, "completed", None, cells))

    def _column(self, row: str, column: str, lane: str, at: int) -> int:
        receipt, purchase, key = self.id(), self.id(), self.id()
        asked = {"run": RUN, "row": row, "column": column, "call": f"{column}/0"}
        self.log.note(at, "rows-1", "asked", **asked, receipt=receipt, asked=0)
        request = self.log.write(
            at + self.soon(3), "rows-1", "tool.requests", receipt, {"kind": "ask", **asked}
        )
        question = _Question(row, column, lane, receipt, purchase, key, request.partition, request)
        shift, at = self._bought(question, request.at + self.soon(2))
        told = {"receipt": receipt, **question.call, "epoch": shift.epoch}
        self.log.note(at, shift.by, "told", **told, status="completed")
        at += self.soon(4)
        self.log.write(at, shift.by, "provider.results", row, question.call)
        self.log.done(at + 1, shift.by, request)
        at += self.soon(3)
        self.log.note(at, "rows-1", "answered", **told)
        self.log.note(at + 1, "rows-1", "cell", run=RUN, row=row, column=column, status="completed")
        return at + 2

    # --- calls -----------------------------------------------------------------------------------

    def _shift_at(self, at: int) -> tuple[Shift, int]:
        """Return who owns the partitions then, or the next one and when it has begun."""
        for shift in self.shifts:
            if at < shift.end - 10 * MS:
                return shift, max(at, shift.begin + self.soon(5))
        raise AssertionError("the last shift ends after all rows")

    def _bought(self, asked: _Question, at: int) -> tuple[Shift, int]:
        """Send until the answer is durable. Returns: who tells it, and when."""
        while True:
            shift, at = self._shift_at(at)
            lease = self.id()
            sent = max(at + 8 * MS, self.free_at[asked.lane])
            if sent > shift.end - MS:
                at = sent
                continue
            self.free_at[asked.lane] = sent + APART[asked.lane]
            claimed = self._sends(asked, shift, lease, sent)
            refused = self.chance.random() < 0.02
            heard = sent + round(self.chance.uniform(20, 60)) * MS
            if heard + 20 * MS > shift.end:
                at = self._interrupted(asked, shift, lease, claimed)
            elif refused:
                at = self._refused(asked, shift, lease, heard)
            else:
                self._heard(asked, shift, lease, heard, "answered", 200)
                durable = heard + self.soon(5)
                self._store(asked, shift, durable, "completed")
                ended = {"receipt": asked.receipt, "purchase": asked.purchase}
                self.log.note(
                    durable + 1, shift.by, "kept", **ended, state="completed", epoch=shift.epoch
                )
                return shift, durable + 2

    def _sends(self, asked: _Question, shift: Shift, lease: str, sent: int) -> int:
        told: dict[str, Any] = {"receipt": asked.receipt, "purchase": asked.purchase}
        told |= {"lease": lease, "epoch": shift.epoch, "lane": asked.lane}
        told["tool"] = f"{asked.lane}.{asked.column}"
        claimed = sent - 7 * MS
        place = {"partition": asked.partition, "expires": claimed + LEASE}
        self.log.note(claimed, shift.by, "claimed", **told, **place)
        self._store(asked, shift, sent - 3 * MS, "running")
        self.log.note(sent - 2 * MS, shift.by, "running", receipt=asked.receipt, lease=lease)
        block = f"b{lease}" if asked.lane == "paced" else ""
        if block:
            permits = {"lane": asked.lane, "block": block, "permits": 1, "until": 0}
            place = {"partition": asked.partition, "epoch": shift.epoch}
            self.log.note(claimed - 1, shift.by, "reserved", **permits, **place)
        about = {"key": asked.key, "block": block, "idempotent": True}
        self.log.note(sent, shift.by, "sent", **told, **about)
        body = {"tool": f"/{asked.column}", "digest": asked.receipt[:8]}
        self.log.note(sent + self.soon(2), "provider-1", "arrived", key=asked.key, **body)
        return claimed

    def _store(self, asked: _Question, shift: Shift, at: int, state: str) -> None:
        value = {"epoch": shift.epoch, "receipt": {"state": state}}
        self.log.write(at, shift.by, RECEIPTS, asked.receipt, value, shift.epoch)

    def _heard(
        self, asked: _Question, shift: Shift, lease: str, at: int, outcome: str, status: int
    ) -> None:
        answered = outcome == "answered"
        self.log.note(
            at,
            shift.by,
            "heard",
            receipt=asked.receipt,
            key=asked.key,
            lease=lease,
            outcome=outcome,
            status=status,
            retryable=not answered,
            maybe_booked=answered,
            reached=True,
        )
        if answered:
            self.log.note(at - 2 * MS, "provider-1", "booked", key=asked.key)
        self.log.note(at - MS, "provider-1", "replied", key=asked.key, status=status)

    def _refused(self, asked: _Question, shift: Shift, lease: str, heard: int) -> int:
        """The provider asks to wait: the whole lane does."""
        self._heard(asked, shift, lease, heard, "transient", 429)
        until = heard + 400 * MS
        self.log.note(heard + 1, shift.by, "held", lane=asked.lane, until=until)
        self.free_at[asked.lane] = max(self.free_at[asked.lane], until + MS)
        return until

    def _interrupted(self, asked: _Question, shift: Shift, lease: str, claimed: int) -> int:
        """Its worker dies or stands still: the next one takes the call over when that is safe."""
        following = self.shifts[self.shifts.index(shift) + 1]
        taken = following.begin + self.soon(20)
        if shift.fate == "frozen":
            taken = max(taken, following.begin + LEASE)
            self._heard_late(asked, shift, lease)
        former = {"receipt": asked.receipt, "purchase": asked.purchase, "lease": lease}
        self.log.note(taken, following.by, "taken_over", **former, state="queued")
        return taken + 1

    def _heard_late(self, asked: _Question, shift: Shift, lease: str) -> None:
        lost = {"retryable": True, "maybe_booked": True, "reached": True, "status": None}
        told = {"receipt": asked.receipt, "key": asked.key, "lease": lease}
        late = shift.thaws + self.soon(5)
        self.log.note(late, shift.by, "heard", **told, outcome="lease_lost", **lost)


def cell_of(values: dict[str, Any], column: str) -> Any:
    """Return what a column works out of an input row."""
    return {column: f"{values['id']}, {column}"}


def generate(rows: int, rng_seed: int = 0, outage_every_s: float = 60) -> Generated:
    """Return a valid history of `rows` rows; about 42 events each."""
    story = _Story(rows, rng_seed, outage_every_s)
    story.tell_lives()
    story.tell_rows()
    log = story.log
    last = max(event["at"] for event in log.events)
    calm = max(BEGIN + rows * ROW_EVERY, last - 60_000 * MS)
    log.note(calm, "runner-1", "calm")
    add_chunks(log, story.published, last)
    log.number()
    committed = add_commits(log, story.shifts)
    return Generated(log.events, _finals(story, committed), LIMITS)


def _finals(story: _Story, committed: dict[str, dict[int, int]]) -> Finals:
    distinct, total = len(story.sheet), len(story.input_rows)
    report = {"run_id": RUN, "state": "finished", "total": total, "completed": distinct}
    report |= {"failed": 0, "skipped": 0, "duplicates": total - distinct}
    topics = story.log.topics()
    ends: dict[str, dict[int, int]] = {topic: {} for topic in committed}
    for topic in committed:
        for record in topics.get(topic, ()):
            past = ends[topic].get(record.partition, 0)
            ends[topic][record.partition] = max(past, record.offset + 1)
    return Finals(
        input_rows=story.input_rows,
        topics=topics,
        ends=ends,
        committed=committed,
        sheet=story.sheet,
        twin=list(story.sheet),
        report={**report, "pending": 0, "cancelled": 0},
        columns=list(COLUMNS),
        cell_of=cell_of,
        canaries=[],
        rebuilt=Rebuilt(0, receipts_equal=True, sheet_equal=True),
        memory_mb={"rows-1": 120.0},
    )
