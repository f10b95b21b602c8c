"""Whatever comes on `rows.completed` is in the sheet, or set aside; the next row is in the sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.streams.core.chunks import Chunk, Span
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.engine.dead_letter import set_aside as to_dead_letter
from rowmill.streams.ports import RowsRefused, Source
from rowmill.streams.sink import agents
from rowmill.streams.sink.intake import Intake
from rowmill.topics import codec
from rowmill.topics.catalogue import ROWS_COMPLETED
from rowmill.topics.contracts import RunRecord
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import changed_wire
from tests.fuzz.records import ROW_DONE, plain
from tests.fuzz.role_loop import AgentApp
from tests.fuzz.strict_engine import Loop, set_aside
from tests.kit.fake_engine import FakeDelivery, settle
from tests.unit.streams.sink.stand_ins import run_record

GOOD = ROW_DONE.model_copy(update={"row": "good"})
PATCH = ROW_DONE.model_copy(update={"kind": "patch", "status": None})
SOURCE = Source("sink", "rows.completed")


class Bench:
    """A sheet that is made anew after some writes, so that columns of odd names do not add up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writes = 0
        self._sheet: SqliteSheet | None = None

    def sheet(self) -> SqliteSheet:
        """Return a sheet that takes another write."""
        if self._sheet is None or self._writes % 100 == 0:
            self.close()
            for file in self._folder.glob("s.sqlite*"):
                file.unlink()
            self._sheet = SqliteSheet(f"sqlite:///{self._folder}/s.sqlite")
        self._writes += 1
        return self._sheet

    def close(self) -> None:
        """Close the sheet."""
        if self._sheet is not None:
            self._sheet.close()
            self._sheet = None

    def write(self, *writes: RowWrite) -> None:
        """Write rows in one transaction, without those that the sheet refuses."""
        sheet = self.sheet()
        start = sheet.next_offsets(SOURCE).get(0)
        offsets = tuple(range(start or 0, (start or 0) + len(writes)))
        chunk = Chunk((Span(0, start, offsets[-1] + 1, offsets, writes),))
        try:
            flushed = sheet.flush(SOURCE, chunk)
        except RowsRefused as refused:
            check_refused(refused, offsets[-1])
            flushed = sheet.flush(SOURCE, chunk.without_rows(refused.reasons))
        assert flushed.next_offsets == {0: offsets[-1] + 1}


def check_refused(refused: RowsRefused, good: int) -> None:
    """Only odd rows are refused, each with a reason."""
    assert (0, good) not in refused.reasons
    assert all(refused.reasons.values())


class Desk:
    """The sink's intake on the strict engine; what it lets through is written by the example."""

    url, rows_waiting = "sqlite:////s.sqlite", 0

    def __init__(self) -> None:
        self.app = AgentApp()
        engine: Any = self.app
        self.writes: list[RowWrite] = []
        self.intake = Intake(
            pause=self.app.paused.add,
            resume=self.app.paused.discard,
            set_aside=lambda delivery, reason: to_dead_letter(engine, delivery, reason),
            secrets=self.app.secrets,
        )
        sheets: Any = self
        self.intake.connect(sheets)
        self.intake.begin({0: 0})
        agents.attach(engine, self.intake)

    def of_run(self, run: str) -> tuple[Desk, RunRecord] | None:
        """As `Sheets.of_run`: one run is known."""
        return (self, run_record()) if run == "run-1" else None

    def offer(self, delivery: FakeDelivery, write: RowWrite, record: RunRecord) -> None:
        """As `SheetFlush.offer`."""
        assert write.run == record.run
        self.writes.append(write)

    async def feed(self, value: bytes, offset: int) -> FakeDelivery:
        """Let the agent take a record in."""
        delivery = FakeDelivery(value, offset=offset, topic="rows.completed")
        await self.app.feed(ROWS_COMPLETED, delivery)
        await settle(2)
        return delivery


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    found = Bench(tmp_path_factory.mktemp("sheets"))
    yield found
    found.close()


async def take_in(bench: Bench, *values: bytes) -> None:
    """Offer odd records, then a good one, and write what comes through."""
    desk = Desk()
    for offset, value in enumerate(values):
        before = len(desk.writes)
        odd: Any = await desk.feed(value, offset)
        waits = desk.intake.holds(odd)
        outcomes = [waits, len(desk.writes) > before, set_aside(desk.app, odd)]
        assert outcomes.count(True) == 1, "it waits, is written, or is set aside"
        if waits:
            desk.intake._give_up(odd)
            await settle(2)
            assert set_aside(desk.app, odd)
    await desk.feed(codec.encode(GOOD), len(values))
    assert desk.writes[-1].row == "good"
    assert desk.intake.positions() == {0: len(values) + 1}
    bench.write(*desk.writes)


@fuzzed
@given(several(changed_wire([plain(ROW_DONE), plain(PATCH)])))
def test_any_finished_row_is_written_or_set_aside(
    loop: Loop, bench: Bench, drawn: Sequence[tuple[int, bytes]]
) -> None:
    values = [value for _, value in drawn]
    bounded(lambda: loop.run(lambda: take_in(bench, *values)))
