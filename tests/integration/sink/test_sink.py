"""The sink on a real broker: exactly once in effect, whatever dies and whatever is restored."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.topics.catalogue import ROWS_COMPLETED
from rowmill.topics.creation import create_topics
from tests.integration.sink.stage import Stage, keys_of, rows_of, watch_writes, writes_of
from tests.kit.broker import SessionBroker, fresh_settings
from tests.kit.until import until

pytestmark = pytest.mark.broker

ROWS = 2_000
KILLS = 3


@pytest.fixture
async def stage(broker: SessionBroker, tmp_path: Path) -> AsyncIterator[Stage]:
    """Topics of the test's own, small chunks, quick sessions."""
    settings = fresh_settings(
        broker, tmp_path / "home", partitions=4, chunk_rows=50, session_timeout_s=6, heartbeat_s=1,
        commit_interval_s=0.2,
    )  # fmt: skip
    await create_topics(settings)
    made = Stage(settings)
    yield made
    made.close()


@pytest.mark.behaviour("S2")
async def test_kill_9_in_the_middle_of_chunks_writes_every_row_exactly_once(
    stage: Stage, tmp_path: Path
) -> None:
    """Two sheets share the topic; each transaction stays open, so that kills hit inside."""
    sheets = {"run-a": tmp_path / "a.sqlite", "run-b": tmp_path / "b.sqlite"}
    for run, path in sheets.items():
        sheet = SqliteSheet(f"sqlite:///{path}")
        sheet.prepare("leads", ["key"], ["v"])
        sheet.close()
        watch_writes(path)
        await stage.open_run(run, path)
    for run in sheets:
        await stage.produce_rows(run, (f"{run}-{number}" for number in range(ROWS // 2)))
    await stage.start(transaction_s=0.05)

    def written() -> int:
        return sum(rows_of(path, run) for run, path in sheets.items())

    async def write(wanted: int) -> None:
        await until(lambda: written() >= wanted, within_s=60)

    for kill in range(1, KILLS + 1):
        await write(ROWS * kill // (KILLS + 2))
        assert await stage.end(signal.SIGKILL) == -signal.SIGKILL
        await stage.start(transaction_s=0.05)
    await write(ROWS)
    for run, path in sheets.items():
        assert writes_of(path) == (ROWS // 2, ROWS // 2)
        assert set(keys_of(path)) == {f"{run}-{number}" for number in range(ROWS // 2)}
    assert await stage.end(signal.SIGTERM) == 0, stage.log[-3000:]
    for path in sheets.values():
        assert await stage.shows_the_end(path)
    assert await stage.dead_letters() == []


async def test_a_sheet_restored_from_an_older_copy_or_deleted_catches_up(
    stage: Stage, tmp_path: Path
) -> None:
    sheet, copy = tmp_path / "s.sqlite", tmp_path / "copy.sqlite"
    await stage.open_run("run-1", sheet)
    await stage.produce_rows("run-1", (str(number) for number in range(300)))
    await stage.start()
    await until(lambda: rows_of(sheet, "run-1") == 300, within_s=30)
    assert await stage.end(signal.SIGTERM) == 0
    shutil.copy(sheet, copy)

    await stage.produce_rows("run-1", (str(number) for number in range(300, 600)))
    await stage.start()
    await until(lambda: rows_of(sheet, "run-1") == 600, within_s=30)
    assert await stage.end(signal.SIGTERM) == 0

    shutil.move(copy, sheet)
    assert rows_of(sheet, "run-1") == 300
    await stage.start()
    await until(lambda: rows_of(sheet, "run-1") == 600, within_s=30)

    # Deleted under a sink that writes it: it ends with a reason, and its successor reads all again.
    sheet.unlink()
    await stage.produce_rows("run-1", (str(number) for number in range(600, 700)))
    sink = stage.sink
    assert sink is not None
    await until(lambda: sink.poll() is not None, within_s=30)
    assert sink.returncode == 3
    assert "an older copy was put in its place" in stage.log
    await stage.start()
    await until(lambda: rows_of(sheet, "run-1") == 700, within_s=30)
    assert sorted(keys_of(sheet), key=int) == [str(number) for number in range(700)]


@pytest.mark.behaviour("S4")
async def test_what_nobody_can_read_is_set_aside_and_the_sheet_still_shows_the_end(
    stage: Stage, tmp_path: Path
) -> None:
    sheet = tmp_path / "s.sqlite"
    await stage.open_run("run-1", sheet)
    await stage.start()
    bad = [(f"k{number}", b'{"schema_version": 9}') for number in range(8)]
    await stage.produce(ROWS_COMPLETED, bad)
    await stage.produce_rows("run-1", (str(number) for number in range(100)))
    await stage.produce(ROWS_COMPLETED, bad)
    await stage.open_run("run-1", sheet, renewals=1)  # its main lives, so the sheet follows closely
    await until(lambda: stage.shows_the_end(sheet), within_s=30)
    assert rows_of(sheet, "run-1") == 100

    async def letters() -> bool:
        return len(await stage.dead_letters()) == 16

    await until(letters, within_s=30)
    for letter in await stage.dead_letters():
        assert letter.topic == "rows.completed"
        assert "schema version 9" in letter.reason


@pytest.mark.behaviour("G3")
async def test_a_locked_sheet_holds_its_rows_and_no_others(stage: Stage, tmp_path: Path) -> None:
    locked, other = tmp_path / "locked.sqlite", tmp_path / "other.sqlite"
    await stage.open_run("run-1", locked)
    await stage.open_run("run-2", other)
    await stage.produce_rows("run-1", ["first"])
    await stage.start()
    await until(lambda: rows_of(locked, "run-1") == 1, within_s=30)
    with closing(sqlite3.connect(locked, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        await stage.produce_rows("run-1", (str(number) for number in range(200)))
        await stage.produce_rows("run-2", (str(number) for number in range(200)))
        await until(lambda: rows_of(other, "run-2") == 200, within_s=30)
        await until(lambda: "sheet_unwritable" in stage.log, within_s=30)
        assert rows_of(locked, "run-1") == 1
        shell.execute("ROLLBACK")
    await until(lambda: rows_of(locked, "run-1") == 201, within_s=30)
