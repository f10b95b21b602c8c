"""The rows role on the fake engine, for its tests."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, cast

from rowmill.plays.loading import LoadedPlay, load
from rowmill.settings import Settings
from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.core.admission import Admission
from rowmill.streams.rows.asks import Asks
from rowmill.streams.rows.entries import RowEntries, derive_counts
from rowmill.streams.rows.intake import Intake, Waiting
from rowmill.streams.rows.open_rows import OpenRows
from rowmill.streams.rows.plays import PlayShelf
from rowmill.streams.rows.runner import RowRunner
from rowmill.topics import codec
from rowmill.topics.contracts import (
    LaneRecord,
    PlayReference,
    ProviderResult,
    RowInput,
    RunOptions,
    RunRecord,
)
from rowmill.topics.views import RunsView
from tests.kit.fake_engine import FakeApp, FakeDelivery, FakeTable, delivered, settle

PLAY = """
    from rowmill import Dataset, Provider, Tool, col

    provider = Provider("p", base_url="http://provider.test")
    company = Tool("p.company", provider, post="/company")
    domain = Tool("p.domain", provider, post="/domain")

    async def resolve(row, ctx):
        if row["company"] is None:
            return ctx.skip("no company")
        return await ctx.tools.execute(domain, {"company": row["company"]["name"]})

    rows = (
        Dataset("d", key="id", when=lambda row: row["id"] != "unwanted")
        .with_column("company", company(symbol=col("id")), on_error="continue")
        .with_column("domain", resolve)
        .with_column("_draft", lambda row: 1)
        .with_column("label", lambda row: f"{row['id']}: {row['domain']['domain']}")
    )
"""

PURE = """
    from rowmill import Dataset

    rows = Dataset("d", key="id").with_column("twice", lambda row: int(row["id"]) * 2)
"""


class Role:
    """The rows role on the fake engine, its rows always in place (one partition)."""

    def __init__(self, folder: Path, source: str = PLAY, **settings: Any) -> None:
        path = folder / "play.py"
        path.write_text(textwrap.dedent(source))
        self.play: LoadedPlay = load(str(path))
        self.app = cast(Any, FakeApp())
        self.table = cast(Any, FakeTable(self.app, derive_counts))
        self.settings = Settings(home=folder, partitions=1, **settings)
        self.runs = RunsView()
        shelf = PlayShelf([folder])
        self.lanes: dict[str, LaneRecord] = {
            tool.id: LaneRecord(tool=tool.id, lane="l", partitions=[0]) for tool in self.play.tools
        }
        self.asks = Asks(self.app, self.lanes.get, self.settings.ask_again_s)
        self.admission: Admission[Waiting] = Admission(
            self.settings.row_max, self.settings.read_ahead_bytes
        )
        self.entries = RowEntries(self.table, self.app.epoch)
        secrets = self.app.secrets
        runner = RowRunner(self.asks, shelf, self.settings, SystemClock(), secrets)
        self.open = OpenRows(
            self.app, self.settings, shelf, runner, self.entries, self.admission, secrets
        )
        self.intake = Intake(
            self.app, self.runs, shelf, self.admission, SystemClock(), secrets,
            partitions=1, owned=lambda: 1, admit=self.open.admit,
        )  # fmt: skip
        intake = self.intake
        self.open.connect(intake.pump, intake.failed, intake.halted, intake.offer_again)
        self.asks.connect(self.open.withhold)
        self.tell_run(state="open")

    def tell_run(self, life: int = 1, offset: int = 0, **fields: Any) -> None:
        reference = self.play.reference
        record = RunRecord(
            run="run", life=life, claim=f"c{life}", instance="i", pid=1, started_at_ms=0,
            updated_at_ms=0, dataset="d",
            play=PlayReference(name="play", path=reference.path, digest=reference.digest),
            **({"options": RunOptions(), "tools": self.play.tools} | fields),
        )  # fmt: skip
        held = self.runs.apply("run", codec.encode(record), offset)
        if held is not None:
            self.open.run_changed(held)
            self.intake.run_changed(held)

    def feed(self, id_: str, index: int, life: int = 1, **fields: Any) -> FakeDelivery:
        values = {"id": id_}
        row = self.play.dataset.identify(values, index).row
        record = RowInput(
            run="run", life=life, dataset="d", row=row, index=index, values=values, **fields
        )
        delivery = delivered(record, offset=index)
        self.intake.offer(delivery)  # type: ignore[arg-type]  # the fake has what is used
        return delivery

    def answer(self, output: Any, **fields: Any) -> None:
        """Answer the newest open question."""
        asked = self.requests[-1]
        plain: dict[str, Any] = {
            "status": "completed", "output": output, "sends": 1, "life": asked.life,
        }  # fmt: skip
        result = ProviderResult(
            run=asked.run, row=asked.row, call=asked.call, receipt=asked.receipt,
            tool=asked.tool, provider="p", **(plain | fields),
        )  # fmt: skip
        self.asks.answered(result)

    @property
    def requests(self) -> list[Any]:
        found: list[Any] = self.app.produced["tool.requests"]
        return found

    @property
    def completed(self) -> list[Any]:
        found: list[Any] = self.app.produced["rows.completed"]
        return found

    async def complete(self, id_: str, index: int) -> FakeDelivery:
        """Feed a row and answer both its calls."""
        delivery = self.feed(id_, index)
        await settle()
        self.answer({"name": id_})
        await settle()
        self.answer({"domain": f"{id_}.test"})
        await settle()
        return delivery

    def counts(self) -> dict[str, Any]:
        found = self.entries._counts_of(0, "run").to_json()
        return {name: value for name, value in found.items() if value}
