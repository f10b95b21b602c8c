"""The simulated rows role: rows of two runs that ask column after column, and ask again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from rowmill.streams.core.commands import force_token
from rowmill.streams.core.outcomes import FailureKind
from rowmill.topics import codec
from rowmill.topics.catalogue import TOOL_REQUESTS
from rowmill.topics.contracts import Contract, Forget, ToolRequest
from rowmill.topics.places import partition_of
from tests.simulation.kafka import Link, Record
from tests.simulation.shape import COLUMNS, RUNS, TOOL_OF, Shape

if TYPE_CHECKING:
    from tests.simulation.world import World

AGAIN_MS = 15_000


@dataclass
class Row:
    """A row of a run: which column it is at, None once it has ended."""

    run: str
    number: int
    column: int | None = None
    status: str = "open"
    epoch: int = 0
    asked: int = 0

    @property
    def id(self) -> str:
        """Its name."""
        return f"r{self.number}"


@dataclass
class Rows:
    """The role, as one that is always there; `restart` forgets what is open."""

    world: World
    chance: random.Random
    shape: Shape
    rows: list[Row] = field(default_factory=list)
    entered: int = 0
    _life: int = 0

    def __post_init__(self) -> None:
        self.alive = True
        self.loop = SimpleNamespace(call_soon=lambda happen: happen())
        self.link = Link(self.world, self, self.chance)  # type: ignore[arg-type]
        self._waiting = [Row(run, number) for number in range(self.shape.rows) for run in RUNS]
        self.rows = list(self._waiting)
        for offset, row in enumerate(self.rows):
            place = {"index": row.number, "partition": 0, "offset": offset}
            self.world.note("main-0", "fed", run=row.run, row=row.id, **place)
        self._open: dict[tuple[str, str], Row] = {}

    @property
    def ended(self) -> int:
        """How many rows have ended."""
        return sum(row.status != "open" for row in self.rows)

    @property
    def done(self) -> bool:
        """Whether all have, and that was noted."""
        return self.entered == len(self.rows)

    def admit(self) -> None:
        """Give free slots to the next rows."""
        while self._waiting and len(self._open) < self.shape.open_max:
            row = self._waiting.pop(0)
            self._open[row.run, row.id] = row
            self._note("admitted", row, index=row.number, partition=0)
            row.column, row.asked = 0, 0
            self._ask(row, self._life, AGAIN_MS)

    def restart(self) -> None:
        """Die and begin anew: every row that was open starts from its first column."""
        self._life += 1
        self._waiting = [*self._open.values(), *self._waiting]
        self._open = {}
        self.admit()

    def result(self, record: Record) -> None:
        """Take a result in."""
        assert record.value is not None
        told = msgspec.json.decode(record.value)
        row = self._open.get((told["run"], told["row"]))
        if row is None or row.column is None or told["call"] != self._call(row):
            return
        self._note("answered", row, call=told["call"], receipt=told["receipt"], epoch=told["epoch"])
        if told["status"] == "failed" and told["error"]["kind"] == FailureKind.STILL_RUNNING:
            row.asked += 1
            self._ask(row, self._life, AGAIN_MS)
            return
        self._note("cell", row, column=COLUMNS[row.column], status=told["status"])
        if told["status"] == "completed" and told["output"] != {"q": self._question(row)}:
            self.world.failures.append(ValueError(f"{row} got an answer of another: {told}"))
        goes_on = told["status"] == "completed" and row.column + 1 < self._columns(row)
        if goes_on:
            row.column, row.asked = row.column + 1, 0
            self._ask(row, self._life, AGAIN_MS)
            return
        row.status, row.column = told["status"], None
        del self._open[row.run, row.id]
        ending = {"index": row.number, "status": row.status, "epoch": 1, "partition": 0}
        self._note("published", row, offset=self.ended, **ending)
        self.world.after(1, lambda: self._enter(row, ending))
        self.admit()

    def _enter(self, row: Row, ending: dict[str, Any]) -> None:
        self._note("entered", row, **ending)
        self.entered += 1

    def _columns(self, row: Row) -> int:
        return 3 if row.number % 4 == 0 else 2

    def _question(self, row: Row) -> str:
        """Rows of both runs share their first questions, and some rows their second."""
        assert row.column is not None
        if row.column == 0:
            return f"bad-{row.number}" if row.number % 5 == 4 else f"first-{row.number}"
        return f"second-{row.number % 5}" if row.column == 1 else f"blind-{row.run}-{row.number}"

    def _receipt(self, row: Row) -> str:
        assert row.column is not None
        return f"{TOOL_OF[COLUMNS[row.column]]}:{self._question(row)}"

    def _call(self, row: Row) -> str:
        assert row.column is not None
        return f"{COLUMNS[row.column]}/{self._receipt(row)}"

    def _ask(self, row: Row, life: int, again_ms: float) -> None:
        request = self._request(row)
        assert row.column is not None
        receipt, column = request.receipt, row.column
        self._note(
            "asked", row, column=COLUMNS[column], call=request.call, receipt=receipt,
            asked=row.asked,
        )  # fmt: skip
        self._send(request.tool, receipt, request)
        asked = row.asked
        self.world.after(again_ms, lambda: self._again(row, life, column, asked, again_ms))

    def forget(self) -> None:
        """An operator wants some receipt gone."""
        row = self.chance.choice(self.rows)
        column = self.chance.randrange(len(COLUMNS))
        receipt = self._receipt(Row(row.run, row.number, column))
        self._send(TOOL_OF[COLUMNS[column]], receipt, Forget(receipt=receipt))

    def _send(self, tool: str, receipt: str, word: Contract) -> None:
        partition = partition_of(receipt, self.shape.lane_of(tool))
        record = Record(receipt, codec.encode(word))

        def arrive() -> None:
            self.world.broker.append(TOOL_REQUESTS.name, partition, record)
            self.world.appended(TOOL_REQUESTS.name, partition, record)

        self.link.send((TOOL_REQUESTS.name, partition), arrive)

    def _request(self, row: Row) -> ToolRequest:
        assert row.column is not None
        again = row.run == RUNS[1]  # that run's command asks again
        force = self.shape.force if again else None
        return ToolRequest.model_construct(
            run=row.run, life=1, dataset="d", row=row.id, call=self._call(row),
            receipt=self._receipt(row), tool=TOOL_OF[COLUMNS[row.column]],
            input={"q": self._question(row)}, reply_partition=0, asked=row.asked,
            wait_s=float(self.chance.choice((10, 900))),
            force=force, force_token=force_token(row.run, 0) if force else None,
            stale_after_s=self.shape.stale_after_s if again else None,
        )  # fmt: skip

    def _again(self, row: Row, life: int, column: int, asked: int, waited_ms: float) -> None:
        if life == self._life and row.column == column and row.asked == asked:
            row.asked += 1
            self._ask(row, life, min(waited_ms * 2, 120_000))

    def _note(self, event: str, row: Row, **fields: Any) -> None:
        self.world.note("rows-0", event, run=row.run, row=row.id, **fields)
