"""Claims, lanes, feeding and looking at runs on a real broker, without workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rowmill.client import Mill, Run, connect
from rowmill.client.claims import LifeLost, RunDriven
from rowmill.client.feed import InputDiffers
from rowmill.client.look import look_at_runs
from rowmill.client.workers import missing_roles
from rowmill.plays.loading import LoadedPlay, load
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.topics.catalogue import ROWS_INPUT, RUNS_EVENTS, TopicDefinition
from rowmill.topics.codec import decode
from rowmill.topics.contracts import DatasetEvent, RowInput
from rowmill.topics.creation import create_topics
from tests.kit.until import until

pytestmark = pytest.mark.broker

PLAY = """\
from rowmill import Dataset, Provider, Tool, col, rate

free = Provider("free", base_url="http://127.0.0.1:1")
paced = Provider("paced", base_url="http://127.0.0.1:1", limits=[rate("10/s")])
first = Tool("free.first", free, post="/first")
second = Tool("paced.second", paced, post="/second")
leads = (
    Dataset("leads", key="email")
    .with_column("a", first(of=col("email")))
    .with_column("b", second(of=col("email")))
)
"""

ROWS = [{"email": f"{number}@a.test"} for number in range(1_500)]


@pytest.fixture
def play(tmp_path: Path) -> LoadedPlay:
    (tmp_path / "play.py").write_text(PLAY)
    return load(str(tmp_path / "play.py"))


@pytest.fixture
async def mill(mill_settings: Settings) -> AsyncIterator[Mill]:
    await create_topics(mill_settings)
    async with connect(mill_settings) as found:
        yield found


async def records_of(settings: Settings, topic: TopicDefinition) -> list[LogRecord]:
    found: list[LogRecord] = []
    reader = LogReader(settings, topic, found.append)
    await reader.start()
    await reader.caught_up()
    await reader.stop()
    return found


async def fed(run: Run) -> None:
    await until(lambda: run.progress().phase == "running", within_s=30)


async def test_a_run_is_claimed_fed_once_and_sealed(mill: Mill, play: LoadedPlay) -> None:
    rows: list[Mapping[str, Any]] = [
        *ROWS,
        {"email": "", "x": "1"},
        {"email": "big@a.test", "x": "y" * 10**6},
    ]
    run = await mill.start(play, rows, run_id="r1")
    await fed(run)
    found = [decode(RowInput, r.value) for r in await records_of(mill.settings, ROWS_INPUT)]
    assert sorted(row.index or 0 for row in found) == list(range(1_502))
    assert len({row.row for row in found}) == 1_502
    refused = {row.index: row for row in found if row.refused}
    assert set(refused) == {1_500, 1_501}
    assert refused[1_501].values == {}
    assert "1,0" in (refused[1_501].refused or "")
    await mill.runs.read_on()
    record = mill.runs.view.get("r1")
    assert record is not None
    assert (record.state, record.life, record.sealed_total) == ("open", 1, 1_502)
    assert record.number == 0
    assert len(record.input_digests) == 2
    await run.close()


async def test_lanes_are_recorded_once_by_whether_the_provider_has_limits(
    mill: Mill, play: LoadedPlay
) -> None:
    first = await mill.start(play, ROWS[:3], run_id="r1")
    await fed(first)
    second = await mill.start(play, ROWS[:3], run_id="r2")
    await fed(second)
    await mill.lanes.read_on()
    free, paced = mill.lanes.view.get("free.first"), mill.lanes.view.get("paced.second")
    assert free is not None
    assert paced is not None
    assert (free.lane, free.partitions) == (
        "tool:free.first",
        list(range(mill.settings.partitions)),
    )
    assert paced.lane == "paced"
    assert len(paced.partitions) == 1
    assert await mill.lanes.reader.end_offsets() == {0: 2}
    await first.close()
    await second.close()


async def test_a_run_that_lives_here_is_refused_at_once(mill: Mill, play: LoadedPlay) -> None:
    run = await mill.start(play, ROWS[:3], run_id="r1")
    with pytest.raises(RunDriven, match="r1 is being driven"):
        await mill.start(play, ROWS[:3], run_id="r1")
    await run.close()


async def test_a_run_that_lives_elsewhere_is_refused_once_it_renews(
    mill: Mill, play: LoadedPlay, tmp_path: Path
) -> None:
    run = await mill.start(play, ROWS[:3], run_id="r1")
    elsewhere = mill.settings.model_copy(update={"home": tmp_path / "elsewhere"})
    notes: list[str] = []
    async with connect(elsewhere) as other:
        with pytest.raises(RunDriven, match="pid"):
            await other.start(play, ROWS[:3], run_id="r1", note=notes.append)
    assert "watching for 20 s" in notes[0]
    await run.close()


async def test_of_two_that_claim_one_life_at_once_one_has_it(
    mill: Mill, play: LoadedPlay, tmp_path: Path
) -> None:
    elsewhere = mill.settings.model_copy(update={"home": tmp_path / "elsewhere"})
    async with connect(elsewhere) as other:
        outcomes = await asyncio.gather(
            mill.start(play, ROWS[:3], run_id="r1"),
            other.start(play, ROWS[:3], run_id="r1"),
            return_exceptions=True,
        )
        runs = [found for found in outcomes if isinstance(found, Run)]
        assert len(runs) == 1
        assert [type(found) for found in outcomes if not isinstance(found, Run)] == [RunDriven]
        for run in runs:
            await run.close()


async def test_a_main_that_died_here_is_followed_at_once_with_the_next_life(
    mill: Mill, play: LoadedPlay
) -> None:
    dead = await mill.start(play, ROWS[:3], run_id="r1")
    await fed(dead)
    await dead.close()  # lets go of the lock and leaves "open" behind, as a killed process does
    run = await mill.start(play, ROWS[:3], run_id="r1")
    assert (run.life, run.resumed) == (2, True)
    await fed(run)
    assert (await look_at_runs(mill.settings, "r1"))[0].life == 2
    await run.close()


async def test_pause_is_durable_and_the_run_goes_on_later(mill: Mill, play: LoadedPlay) -> None:
    run = await mill.start(play, ROWS[:3], run_id="r1")
    await fed(run)
    report = await run.pause("Ctrl-C")
    assert (report.state, report.pending, report.exit_code) == ("paused", 3, 1)
    await run.close()
    looked = await look_at_runs(mill.settings)
    assert [(look.run_id, look.state, look.reason) for look in looked] == [
        ("r1", "paused", "Ctrl-C")
    ]
    again = await mill.start(play, ROWS[:3], run_id="r1")
    assert again.life == 2
    await again.close()


async def test_other_rows_under_the_same_run_id_are_refused_before_a_claim(
    mill: Mill, play: LoadedPlay
) -> None:
    run = await mill.start(play, ROWS, run_id="r1")
    await fed(run)
    await run.pause("test")
    await run.close()
    changed = [*ROWS]
    changed[1_200] = {"email": "other@a.test"}
    with pytest.raises(InputDiffers, match="rows 1,001-1,500 differ"):
        await mill.start(play, changed, run_id="r1")
    with pytest.raises(InputDiffers, match="rows 1,501-1,501 are new"):
        await mill.start(play, [*ROWS, {"email": "new@a.test"}], run_id="r1")
    assert (await look_at_runs(mill.settings, "r1"))[0].life == 1


async def test_a_main_that_was_followed_stops_and_leaves_no_word(
    mill: Mill, play: LoadedPlay
) -> None:
    run = await mill.start(play, ROWS[:3], run_id="r1")
    await fed(run)
    await mill.runs.read_on()
    held = mill.runs.view.get("r1")
    assert held is not None
    stolen = held.model_copy(update={"life": 2, "claim": "other", "state": "open", "pid": 4_242})
    await mill.runs.write("r1", stolen, source="test", run="r1")
    with pytest.raises(LifeLost, match="taken over by life 2"):
        await run.done()
    await mill.runs.read_on()
    after = mill.runs.view.get("r1")
    assert after is not None
    assert (after.claim, after.state) == ("other", "open")
    await run.close()


async def test_a_dataset_starts_once_over_all_lives(mill: Mill, play: LoadedPlay) -> None:
    for _ in range(2):
        run = await mill.start(play, ROWS[:3], run_id="r1")
        await fed(run)
        await run.pause("test")
        await run.close()
    records = await records_of(mill.settings, RUNS_EVENTS)
    kinds = [decode(DatasetEvent, record.value).kind for record in records]
    assert kinds == ["started", "paused", "paused"]


async def test_progress_says_which_roles_nobody_serves(mill: Mill, play: LoadedPlay) -> None:
    assert await missing_roles(mill.settings) == {"rows", "dispatch", "sink"}
    run = await mill.start(play, ROWS[:3], run_id="r1")
    await until(lambda: "no rows worker" in run.progress().trouble, within_s=20)
    await run.close()
