"""A play of one question a row, asked of the test's own ledger, and what a run of it must come to."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rowmill.settings import Settings
from tests.kit.mill import Mill, RunningRun
from tests.kit.until import until_sync
from tests.kit.workers import WorkerProcess

QUICK = {"session_timeout_s": 6, "heartbeat_s": 1, "lease_s": 4}
"""Settings that make an owner's death be seen soon: 6 s is the least that Kafka allows by default."""

PARTITIONS = Settings().partitions

PLAY = """
from rowmill import Dataset, Params, Provider, Tool, batch, col, header, rate


class Options(Params):
    base_url: str = "http://127.0.0.1:1"


ledger = Provider({provider!r}, base_url=Options.base_url, {provider_options})
ask = Tool("ledger.ask", ledger, post="/ask", {tool_options})
asked = Dataset("asked", key="id").with_column("answer", ask(q=col("id")))
"""


def write_play(
    folder: Path,
    name: str = "play",
    *,
    provider: str = "ledger",
    provider_options: str = 'concurrency=400, auth=header("X-Worker", "WORKER")',
    tool_options: str = "",
) -> Path:
    """Write the play with these options (Python text) into `folder`; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(
        PLAY.format(provider=provider, provider_options=provider_options, tool_options=tool_options)
    )
    return path


def write_rows(path: Path, ids: Iterable[str]) -> Path:
    """Write a CSV with one column `id`; return its path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id"])
        writer.writerows([one] for one in ids)
    return path


def numbered(count: int) -> list[str]:
    """Return `count` ids."""
    return [f"q{number:05d}" for number in range(count)]


def answers(run: RunningRun) -> dict[str, Any]:
    """Return each row's answer in the exported CSV, by id; a row that stands twice is an error."""
    found: dict[str, Any] = {}
    for row in run.rows():
        assert row["id"] not in found, f"row {row['id']} was exported twice"
        found[row["id"]] = json.loads(row["answer"]) if row["answer"] else None
    return found


def completed(run: RunningRun, rows: int, within_s: float = 180) -> dict[str, Any]:
    """Wait for the run's end; every row must be completed with its own answer. Return its report."""
    code, report = run.done(within_s)
    assert (code, report["completed"], report["pending"]) == (0, rows, 0), report
    found = answers(run)
    assert len(found) == rows
    assert all(value["q"] == row for row, value in found.items())
    return report


def asks_nothing_again(
    mill: Mill,
    rows: Path,
    run_id: str,
    known: dict[str, Any],
    calls: int,
    play: Path | None = None,
) -> None:
    """Run the same rows anew: the answers are `known`, and none of the `calls` is bought again."""
    again = mill.start_run(rows, run_id, play=play)
    report = completed(again, len(known))
    assert answers(again) == known
    assert report["calls"] == 0, f"{report['calls']} calls of {calls} were bought again"


def dispatch(mill: Mill, index: int, **env: str) -> WorkerProcess:
    """Start a dispatch worker that the ledger knows as `w{index}`."""
    return mill.worker("dispatch", index, ROWMILL_SECRET_WORKER=f"w{index}", **env)


def share(*workers: WorkerProcess) -> None:
    """Return once the partitions are shared out among exactly these workers."""

    def shared() -> bool:
        owned = [worker.partitions for worker in workers]
        owners = [partition for one in owned for partition in one]
        return sorted(owners) == list(range(PARTITIONS)) and all(owned)

    until_sync(shared, within_s=60)
