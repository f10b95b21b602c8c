"""Whatever comes to the rows role is run, waits, or is set aside; the next good row completes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from rowmill.plays.loading import LoadedPlay, load
from rowmill.settings import Settings
from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.core.admission import Admission
from rowmill.streams.rows import agents
from rowmill.streams.rows.asks import Asks
from rowmill.streams.rows.entries import RowEntries, derive_counts
from rowmill.streams.rows.intake import Intake, Waiting
from rowmill.streams.rows.open_rows import OpenRows
from rowmill.streams.rows.plays import PlayShelf
from rowmill.streams.rows.runner import RowRunner
from rowmill.topics import codec
from rowmill.topics.catalogue import PROVIDER_RESULTS, ROWS_INPUT
from rowmill.topics.contracts import LaneRecord, ProviderResult, RowInput, RunRecord
from rowmill.topics.views import LanesView, RunsView
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import changed_records, changed_wire, wire
from tests.fuzz.records import INPUT, RESULT, RUN, plain
from tests.fuzz.role_loop import AgentApp
from tests.fuzz.strict_engine import Loop, StrictTable, set_aside
from tests.kit.fake_engine import FakeDelivery, settle

PLAY = """
    from rowmill import Dataset, Provider, Tool, col

    provider = Provider("p", base_url="http://provider.test")
    company = Tool("p.company", provider, post="/company")

    rows = (
        Dataset("d", key="id", when=lambda row: row["id"] != "unwanted")
        .with_column("company", company(symbol=col("id")), on_error="continue")
        .with_column("label", lambda row: f"{row['id']}: {row['company']['name']}")
    )
"""


class Shelf:
    """The play, loaded once, and where it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "play.py"
        path.write_text(textwrap.dedent(PLAY))
        self.play: LoadedPlay = load(str(path))
        self.settings = Settings(home=folder, partitions=1)
        self.plays = PlayShelf([folder])

    def run(self, run: str) -> RunRecord:
        """Return the record of a run of the play."""
        reference = self.play.reference
        fields: dict[str, object] = {
            "name": "play",
            "path": reference.path,
            "digest": reference.digest,
            "params": {},
        }
        return RUN.model_copy(
            update={
                "run": run,
                "play": RUN.play.model_copy(update=fields),
                "providers": self.play.providers,
                "tools": self.play.tools,
            }
        )


class Desk:
    """The rows role on the strict engine, one partition."""

    def __init__(self, shelf: Shelf) -> None:
        self.app = app = AgentApp()
        engine: Any = app
        self.table = StrictTable(app, derive_counts)
        table: Any = self.table
        self.shelf, settings = shelf, shelf.settings
        self.runs, self.lanes = RunsView(), LanesView(settings.partitions)
        self.asks = Asks(engine, self.lanes.get, settings.ask_again_s)
        admission: Admission[Waiting] = Admission(settings.row_max, settings.read_ahead_bytes)
        entries = RowEntries(table, app.epoch)
        clock, secrets = SystemClock(), app.secrets
        runner = RowRunner(self.asks, shelf.plays, settings, clock, secrets)
        self.open = OpenRows(engine, settings, shelf.plays, runner, entries, admission, secrets)
        self.intake = Intake(
            engine, self.runs, shelf.plays, admission, clock, secrets,
            partitions=1, owned=lambda: 1, admit=self.open.admit,
        )  # fmt: skip
        intake = self.intake
        self.open.connect(intake.pump, intake.failed, intake.halted, intake.offer_again)
        self.asks.connect(self.open.withhold)
        agents.attach(engine, self.intake, self.asks)

    def tell_runs(self, *runs: str) -> None:
        """Let the role know good runs, and the lane of their tool."""
        for run in runs:
            self.tell_run(run, codec.encode(self.shelf.run(run)))
        lane = LaneRecord(tool="p.company", lane="p", partitions=[0])
        self.tell_lane("p.company", codec.encode(lane))

    def tell_run(self, key: str, value: bytes) -> None:
        """As `Rows._on_run`."""
        held = self.runs.apply(key, value, 0)
        if held is not None:
            self.intake.run_changed(held)

    def tell_lane(self, key: str, value: bytes) -> None:
        """As `Rows._on_lane`."""
        if self.lanes.apply(key, value, 0) is not None:
            self.asks.lane_changed()

    async def feed(self, value: bytes, offset: int) -> FakeDelivery:
        """Let the agent take an input record in."""
        delivery = FakeDelivery(value, offset=offset, topic="rows.input")
        await self.app.feed(ROWS_INPUT, delivery)
        await settle(3)
        return delivery

    async def answer(self, value: bytes, offset: int) -> FakeDelivery:
        """Let the agent take a result in."""
        delivery = FakeDelivery(value, offset=offset, topic="provider.results")
        await self.app.feed(PROVIDER_RESULTS, delivery)
        await settle(4)
        return delivery

    def waits(self, delivery: FakeDelivery) -> bool:
        """Whether the role knows what that record waits for."""
        known: Any = delivery
        return self.open.works_on(known) or self.intake.holds(known)

    async def check_good(self) -> None:
        """Another row, of a good run, is asked about, answered and completed."""
        fields = {"run": "good", "row": "good", "index": 5, "values": {"id": "good"}}
        good = await self.feed(codec.encode(INPUT.model_copy(update=fields)), 8)
        asked = [request for request in self.app.produced["tool.requests"] if request.run == "good"]
        result = answer_to(asked[-1])
        await self.answer(codec.encode(result), 9)
        assert not self.app.failures, self.app.failures
        done = [row for row in self.app.produced["rows.completed"] if row.row == "good"]
        assert [row.status for row in done] == ["completed"], done
        assert good.acked


def answer_to(asked: Any) -> ProviderResult:
    """Return a good answer to a question."""
    names = ("run", "life", "row", "call", "receipt", "tool")
    fields = {name: getattr(asked, name) for name in names}
    return RESULT.model_copy(update=fields)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("plays"))


async def take_in(shelf: Shelf, *values: bytes) -> None:
    """Offer bad records, answer what they ask, then a good one."""
    desk = Desk(shelf)
    desk.tell_runs("run", "good")
    bad = [await desk.feed(value, offset) for offset, value in enumerate(values)]
    for asked in list(desk.app.produced["tool.requests"]):
        await desk.answer(codec.encode(answer_to(asked)), 6)
    for one in bad:
        assert one.acked or desk.waits(one), "neither acknowledged, nor known to wait"
    for row in desk.app.raw["rows.input"]:
        codec.decode(RowInput, row)
    await desk.check_good()


@fuzzed
@given(several(changed_wire([plain(INPUT), plain(INPUT.model_copy(update={"row": None}))])))
def test_any_input_row_is_run_or_set_aside(
    loop: Loop, shelf: Shelf, drawn: Sequence[tuple[int, bytes]]
) -> None:
    values = [value for _, value in drawn]
    bounded(lambda: loop.run(lambda: take_in(shelf, *values)))


async def hear(shelf: Shelf, *odd: Any) -> None:
    """Ask for a row, hear odd answers, then the good one, then run another row."""
    desk = Desk(shelf)
    desk.tell_runs("run", "good")
    row = await desk.feed(codec.encode(INPUT), 100)
    (asked,) = desk.app.produced["tool.requests"]
    good = plain(answer_to(asked))
    for offset, changed in enumerate(odd):
        heard = await desk.answer(wire(addressed(changed, good)), offset)
        assert heard.acked, "a result is taken, or set aside"
    await desk.answer(codec.encode(answer_to(asked)), 5)
    assert row.acked, "its row has ended: by the odd answer or by the good one"
    assert not set_aside(desk.app, row)
    await desk.check_good()


def addressed(changed: Any, good: dict[str, Any]) -> Any:
    """Return an odd answer to the question that was asked, where it is not odd in that."""
    if not isinstance(changed, dict):
        return changed
    stands = {"row": RESULT.row, "call": RESULT.call, "receipt": RESULT.receipt, "tool": "t"}
    return {
        name: good[name] if name in stands and value == stands[name] else value
        for name, value in changed.items()
    }


@fuzzed
@given(
    several(
        changed_records(
            [
                plain(RESULT),
                plain(RESULT) | {"status": "failed", "error": {"kind": "x", "message": ""}},
            ]
        )
    )
)
def test_a_result_with_an_odd_field_is_heard_or_set_aside(
    loop: Loop, shelf: Shelf, changed: Sequence[object]
) -> None:
    bounded(lambda: loop.run(lambda: hear(shelf, *changed)))


async def learn(shelf: Shelf, *values: bytes) -> None:
    """Hear of odd runs and odd lanes, feed a row after each, then a good one."""
    desk = Desk(shelf)
    for offset, value in enumerate(values):
        desk.tell_run("run", value)
        desk.tell_lane("p.company", value)
        row = await desk.feed(codec.encode(INPUT), offset)
        assert row.acked or desk.waits(row)
    for asked in list(desk.app.produced["tool.requests"]):
        await desk.answer(codec.encode(answer_to(asked)), 6)
    desk.tell_runs("good")
    await desk.check_good()


@fuzzed
@given(
    several(
        changed_records([plain(RUN), plain(LaneRecord(tool="p.company", lane="p", partitions=[0]))])
    )
)
def test_a_row_of_an_odd_run_or_lane_is_run_or_waits(
    loop: Loop, shelf: Shelf, drawn: Sequence[object]
) -> None:
    good = plain(shelf.run("run"))
    values = [wire(found_here(changed, good)) for changed in drawn]
    bounded(lambda: loop.run(lambda: learn(shelf, *values)))


def found_here(changed: Any, good: dict[str, Any]) -> Any:
    """Return an odd run of the play that is here, where it is not odd in that."""
    if isinstance(changed, dict) and "play" in changed:
        play = changed["play"]
        if isinstance(play, dict):
            changed["play"] = {**play, "digest": good["play"]["digest"]}
            if play.get("path") == RUN.play.path:
                changed["play"] |= {"path": good["play"]["path"], "params": {}}
        changed |= {name: good[name] for name in ("tools", "providers") if name in changed}
    return changed
