"""A worker's disk that is full, lies or breaks: it says where, and its changelog has everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.asking import (
    PARTITIONS,
    answers,
    asks_nothing_again,
    completed,
    dispatch,
    numbered,
    share,
    write_rows,
)
from tests.kit.disks import failing_fsync, fill, small_disk
from tests.kit.ledger import Ledger
from tests.kit.long import by_hand
from tests.kit.mill import Mill, RunningRun
from tests.kit.until import until_sync
from tests.kit.workers import WorkerProcess

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

ROWS = 600
BY_DISK_MB = 48


@pytest.mark.behaviour("R2")
def test_a_full_disk_ends_the_worker_which_names_its_place_and_loses_nothing(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    """F24."""
    with small_disk(tmp_path / "stores" / "dispatch-0", BY_DISK_MB) as disk:
        worker = dispatch(mill, 0)
        worker.ready()
        ledger.latency_of = lambda call: 0.05
        rows = write_rows(tmp_path / "in.csv", numbered(ROWS))
        run = mill.start_run(rows, "full", "--concurrency", "20")
        ledger.until_answered(ROWS // 6)
        fill(disk / "filler")
        assert worker.wait(within_s=60) == 3
        said = worker.logged("worker_failed")[0]
        assert str(disk) in said
        assert "No space left" in said
        assert "Free disk space" in said
        (disk / "filler").unlink()
        worker = dispatch(mill, 0)
        completed(run, ROWS)
        known, calls = answers(run), len(ledger.calls)
        assert calls <= ROWS + 20, "only calls that were open may be sent again"
        asks_nothing_again(mill, rows, "again", known, calls)
        assert worker.stop() == 0


@pytest.mark.behaviour("R2")
def test_a_store_that_can_not_be_synced_ends_the_worker(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    """F25: what the disk did not keep is never built on."""
    env, flag = failing_fsync(tmp_path)
    worker = dispatch(mill, 0, **env)
    worker.ready()
    rows = write_rows(tmp_path / "in.csv", numbered(ROWS))
    completed(run := mill.start_run(rows, "first"), ROWS)
    known, calls = answers(run), len(ledger.calls)
    assert worker.stop() == 0
    flag.touch()
    refused = dispatch(mill, 0, **env)
    assert refused.wait(within_s=60) == 3
    (said,) = refused.logged("worker_failed")
    assert str(refused.store) in said
    assert "Input/output error" in said
    flag.unlink()
    share(dispatch(mill, 0, **env))
    asks_nothing_again(mill, rows, "again", known, calls)


@by_hand
@pytest.mark.behaviour("R2")
def test_slow_syncs_cost_no_answer(mill: Mill, ledger: Ledger, tmp_path: Path) -> None:
    """F26: each fsync takes 300 ms."""
    env, flag = failing_fsync(tmp_path, delay_ms=300)
    flag.touch()
    dispatch(mill, 0, **env).ready()
    completed(mill.start_run(write_rows(tmp_path / "in.csv", numbered(ROWS)), "slow"), ROWS)
    assert ledger.repeated() == {}
    assert len(ledger.calls) == ROWS


@pytest.mark.behaviour("R2")
def test_a_flipped_byte_in_a_store_is_noticed_and_the_store_rebuilt(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    """F27: every table file of the store is damaged in its middle."""
    worker = dispatch(mill, 0)
    worker.ready()
    rows = write_rows(tmp_path / "in.csv", numbered(ROWS))
    completed(run := mill.start_run(rows, "first"), ROWS)
    known, calls = answers(run), len(ledger.calls)
    assert worker.stop() == 0
    tables = sorted(worker.store.rglob("*.sst"))
    assert tables, "the store wrote no table: there is nothing to damage"
    for table in tables:
        content = bytearray(table.read_bytes())
        content[len(content) // 2] ^= 0x40
        table.write_bytes(content)
    again = mill.start_run(rows, "again")
    dropped = 0
    for _ in range(2 * PARTITIONS + 1):  # each start may meet the damage of one store more
        worker = dispatch(mill, 0)
        until_sync(lambda: ended(again, worker), within_s=120)  # noqa: B023
        dropped += len(worker.logged("store_dropped"))
        if again.process.poll() is not None:
            break
        said = worker.logged("worker_failed")
        assert said
        assert all("a broken store is rebuilt from its changelog" in line for line in said)
    assert dropped, "no damage was met: the fault hit nothing"
    assert completed(again, ROWS)["calls"] == 0
    assert answers(again) == known
    assert len(ledger.calls) == calls


def ended(run: RunningRun, worker: WorkerProcess) -> bool:
    return run.process.poll() is not None or worker.process.poll() is not None
