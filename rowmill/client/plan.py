"""What a run would buy: its rows are worked out as far as receipts answer, and nothing is called.

Columns and resolvers are run as in a run, on the same rows. A call that a receipt answers gives its
answer; any other is counted, and what depends on it is not known: how many calls follow from it is told
as a bound, one for each tool that a column names. A resolver may ask a tool more often than once a row.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from rowmill.client.owners import Owners
from rowmill.client.source import Source
from rowmill.plays.compiled import CompiledColumn, PlainWork, ResolverWork, ToolWork
from rowmill.plays.context import CallFailed, Force, Log, Skipped
from rowmill.plays.loading import LoadedPlay
from rowmill.plays.providers import seconds
from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.plays.tools import OutputT, Tool
from rowmill.plays.values import to_json
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogRecord
from rowmill.streams.core.columns import Row
from rowmill.streams.core.identity import receipt_key
from rowmill.streams.core.receipts import Ask, Asker, Existing, Receipt, claim
from rowmill.topics.codec import UndecodableRecord, decode
from rowmill.topics.contracts import ReceiptEntry

RESOLVER_S_MAX = 10
"""A resolver that takes longer asks somebody else than `ctx.tools`: what follows is not known."""


class NotKnown(BaseException):
    """Only a call could tell. No `Exception`, so that play code that catches those does not."""


class ReceiptShelf:
    """The newest record of every receipt, in a temporary file."""

    def __init__(self) -> None:
        self._newest = sqlite3.connect("", check_same_thread=False)
        self._newest.execute("CREATE TABLE newest (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self._owners = Owners()

    def apply(self, record: LogRecord) -> None:
        """Take in one record of the changelog; a former owner's late one changes nothing."""
        if self._owners.admit(record):
            put = "INSERT OR REPLACE INTO newest VALUES (?, ?)"
            self._newest.execute(put, (record.key, record.value))

    def get(self, key: str) -> Receipt | None:
        """Return a receipt, None where there is none that can be read."""
        found = self._newest.execute("SELECT value FROM newest WHERE key = ?", (key,)).fetchone()
        try:
            return decode(ReceiptEntry, found[0]).receipt if found and found[0] else None
        except UndecodableRecord:
            return None

    def close(self) -> None:
        """Forget all."""
        self._newest.close()


@contextmanager
def receipt_shelf() -> Iterator[ReceiptShelf]:
    """Yield an empty shelf; it is gone afterwards."""
    with closing(ReceiptShelf()) as shelf:
        yield shelf


@dataclass
class PlannedTool:
    """What a run asks of one tool. `known`: distinct calls that no receipt answers; `answered`: those
    that one does; `following`: calls that may follow from the known ones, at most."""

    tool: ToolSpec
    provider: ProviderSpec
    known: int = 0
    answered: int = 0
    following: int = 0

    @property
    def cost(self) -> float:
        """What the known calls cost."""
        return self.known * self.tool.cost

    @property
    def cost_max(self) -> float:
        """What they and those that may follow cost."""
        return (self.known + self.following) * self.tool.cost


@dataclass
class Plan:
    """What a run would do. `refused`: rows without a key, or that the reader refused; `skipped`: by the
    dataset's `when`; `failing`: rows whose own code fails. `resolvers`: columns whose code names no tool,
    so that nothing is known of what they ask."""

    total: int = 0
    duplicates: int = 0
    refused: int = 0
    skipped: int = 0
    failing: int = 0
    tools: dict[str, PlannedTool] = field(default_factory=dict)
    resolvers: list[str] = field(default_factory=list)

    def least_s(self, *, following: bool) -> float | None:
        """Return how long the providers' limits make the calls take, the slowest's time."""
        calls: dict[str, tuple[ProviderSpec, int]] = {}  # requests: a batch needs one permit
        for planned in self.tools.values():
            provider = planned.provider
            batch = planned.tool.batch
            count = planned.known + (planned.following if following else 0)
            count = -(-count // batch.size) if batch is not None else count
            calls[provider.id] = (provider, calls.get(provider.id, (provider, 0))[1] + count)
        times = [
            (math.ceil(count / rate.calls) - 1) * rate.per_s
            for provider, count in calls.values()
            for rate in provider.limits
            if count
        ]
        return max(times, default=None)


class Planner:
    """Works rows out against receipts."""

    def __init__(
        self, play: LoadedPlay, shelf: ReceiptShelf, settings: Settings, now_wall_ms: int,
        force: Force | None = None,
    ) -> None:  # fmt: skip
        self._play = play
        self._shelf = shelf
        self._organisation = settings.organisation
        self._now_wall_ms = now_wall_ms
        self._force = force
        self._asked: set[bytes] = set()
        self.plan = Plan()
        providers = {provider.id: provider for provider in play.providers}
        for tool in play.tools:
            self.plan.tools[tool.id] = PlannedTool(tool, providers[tool.provider])
        self._named = {column.name: _named_tools(column) for column in play.dataset.columns}
        self.plan.resolvers = [
            column.name
            for column in play.dataset.columns
            if isinstance(column.work, ResolverWork) and not self._named[column.name]
        ]

    async def work_out(self, source: Source) -> Plan:
        """Go through all rows. Returns: the plan."""
        seen: set[str] = set()
        for index, row in enumerate(source.rows()):
            self.plan.total += 1
            if row.row in seen:
                self.plan.duplicates += 1
                continue
            seen.add(row.row)
            if row.refused is not None:
                self.plan.refused += 1
            else:
                await self._row(row.row, index, row.values)
        return self.plan

    async def _row(self, row_id: str, index: int, values: Mapping[str, Any]) -> None:
        try:
            if not self._play.dataset.qualifies(values):
                self.plan.skipped += 1
                return
        except Exception:  # noqa: BLE001 - the play's own code: in a run the row fails with it
            self.plan.failing += 1
            return
        row = _PlannedRow(values)
        for column in self._play.dataset.columns:
            try:
                row.outputs[column.name] = await self._value(column, row, row_id, index)
            except (NotKnown, TimeoutError):
                row.unknown.add(column.name)
                for tool in self._named[column.name] - row.asked:
                    self.plan.tools[tool].following += 1
            except Exception:  # noqa: BLE001 - as above
                if column.on_error == "fail":
                    self.plan.failing += 1
                    return
                row.outputs[column.name] = None
            row.asked.clear()

    async def _value(
        self, column: CompiledColumn, row: _PlannedRow, row_id: str, index: int
    ) -> Any:
        """Return a column's value. Raises: NotKnown; what play code raises."""
        if column.when is not None and not column.when(row):
            return None
        context = _PlanContext(self, row, row_id, index)
        match column.work:
            case PlainWork(function=function):
                value = function(row)
            case ToolWork(tool=tool, build=build):
                value = await context.execute(tool, build(row))
            case ResolverWork(function=resolve):
                async with asyncio.timeout(RESOLVER_S_MAX):
                    value = await resolve(row, context)
        return value.value if isinstance(value, Skipped) else value

    def ask(
        self,
        tool: Tool[Any],
        question: Mapping[str, Any],
        row: _PlannedRow,
        wishes: Mapping[str, Any],
    ) -> Any:
        """Return the answer of a receipt. Raises: NotKnown where there is none; CallFailed."""
        spec, provider = tool.spec, tool.provider.spec
        plain = to_json(question, f"{tool.id}: input")
        key = receipt_key(
            self._organisation, provider.scope, spec.id, spec.version, provider.host, plain
        )
        stale = wishes.get("stale_after")
        stale_s = spec.stale_after_s if stale is None else seconds(stale)
        ask = Ask(
            key,
            spec.id,
            provider.id,
            Asker("plan", 1, "plan", "plan"),
            self._now_wall_ms,
            force=wishes.get("force") or self._force,
            stale_after_ms=None if stale_s is None else round(stale_s * 1000),
        )
        row.asked.add(spec.id)
        receipt, answer = claim(self._shelf.get(key), ask, purchase="plan")
        planned = self.plan.tools.setdefault(spec.id, PlannedTool(spec, provider))
        first = bytes.fromhex(key) not in self._asked
        self._asked.add(bytes.fromhex(key))
        if not isinstance(answer, Existing):
            planned.known += first
            raise NotKnown
        planned.answered += first
        if receipt.failure is not None:
            failure = receipt.failure
            raise CallFailed(spec.id, failure.kind, failure.message, failure.status_code)
        return tool.read(receipt.output)


def _named_tools(column: CompiledColumn) -> frozenset[str]:
    """Return the tools that a column asks: its own, or those that its resolver's code names."""
    work = column.work
    if isinstance(work, ToolWork):
        return frozenset([work.tool.id])
    if isinstance(work, PlainWork):
        return frozenset()
    found = inspect.getclosurevars(inspect.unwrap(work.function))
    named = [*found.globals.values(), *found.nonlocals.values()]
    return frozenset(value.id for value in named if isinstance(value, Tool))


class _PlannedRow(Row):
    """A row of which some columns are not known. `asked`: tools that the present column has asked."""

    __slots__ = ("asked", "outputs", "unknown")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.outputs: dict[str, Any] = {}
        self.unknown: set[str] = set()
        self.asked: set[str] = set()
        super().__init__(values, self.outputs)

    def __getitem__(self, name: str) -> Any:
        if name in self.unknown:
            raise NotKnown
        return super().__getitem__(name)


class _PlanContext:
    """Fulfils `RowContext` and its `Tools`: answers are those of receipts."""

    def __init__(self, planner: Planner, row: _PlannedRow, row_id: str, index: int) -> None:
        self._planner = planner
        self._row = row
        self.row_id = row_id
        self.index = index
        self.tools = self

    @property
    def log(self) -> Log:
        """What a plan logs is of no use."""
        return structlog.get_logger("plan")  # type: ignore[no-any-return]

    def skip(self, reason: str, value: Any = None) -> Skipped:
        """Skip a cell."""
        return Skipped(reason, value)

    async def execute(
        self, tool: Tool[OutputT], input: Mapping[str, Any], **wishes: Any
    ) -> OutputT:
        """Return what a receipt answers. Raises: NotKnown, CallFailed."""
        return self._planner.ask(tool, input, self._row, wishes)  # type: ignore[no-any-return]


def to_json_text(plan: Plan) -> str:
    """Return a plan as one JSON object."""
    tools = [
        {
            "tool": planned.tool.id,
            "provider": planned.provider.id,
            "known": planned.known,
            "answered": planned.answered,
            "following_max": planned.following,
            "cost": planned.cost,
            "cost_max": planned.cost_max,
        }
        for planned in plan.tools.values()
    ]
    told = {
        "schema": 1,
        "rows": plan.total,
        "duplicates": plan.duplicates,
        "refused": plan.refused,
        "skipped": plan.skipped,
        "failing": plan.failing,
        "tools": tools,
        "resolvers": plan.resolvers,
        "at_least_s": plan.least_s(following=False),
        "at_least_s_max": plan.least_s(following=True),
    }
    return msgspec.json.encode(told).decode()
