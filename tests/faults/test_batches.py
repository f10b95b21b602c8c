"""Batches and dying workers: the same bodies under the same keys, no member in another batch (Q2)."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.faults.asking import completed, dispatch, numbered, share, write_play, write_rows
from tests.kit.ledger import Call, Ledger
from tests.kit.mill import Mill
from tests.kit.until import until_sync

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

SIZE = 20
KILLS = 3
BATCH = f'batch=batch(post="/batch", size={SIZE}, members="qs", match="q", linger_ms=20)'


def answer_batch(call: Call) -> tuple[int, Any]:
    """Answer each member with its question, last first; a single call with itself."""
    if "qs" not in call.question:
        return 200, {"q": call.question["q"], "arrival": call.number}
    found = [{"q": one, "arrival": call.number} for one in call.question["qs"]]
    return 200, {"results": found[::-1]}


@pytest.mark.behaviour("Q2")
def test_kill_9_with_batches_open_sends_the_same_bodies_under_the_same_keys(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows = numbered(600)
    play = write_play(tmp_path / "plays", "batched", tool_options=BATCH)
    ledger.answer = answer_batch
    workers = [dispatch(mill, 0), dispatch(mill, 1)]
    for worker in workers:
        worker.ready()
    share(*workers)
    ledger.hold()
    run = mill.start_run(
        write_rows(tmp_path / "in.csv", rows), "batched", "--concurrency", "200", play=play
    )
    for kill in range(KILLS):
        ledger.until_open(6)
        place = kill % 2
        name = f"w{place}"
        workers[place].kill_9()
        until_sync(lambda: all(c.worker != name for c in ledger.open), within_s=10)  # noqa: B023
        if place:
            share(workers[0])  # another instance takes over
        workers[place] = dispatch(mill, place)
        cut = {key for key, calls in ledger.by_key().items() if calls[-1].ended == "cut"}
        until_sync(lambda: cut <= {c.key for c in ledger.open}, within_s=60)  # noqa: B023
        ledger.release_open()
    ledger.release()
    completed(run, len(rows))
    assert any(call.ended == "cut" for call in ledger.calls)
    batches_of: dict[str, set[str]] = defaultdict(set)
    for key, calls in ledger.by_key().items():
        bodies = {json.dumps(call.question, sort_keys=True) for call in calls}
        assert len(bodies) == 1, "a key stands for one body"
        # One that was answered may be sent again, too: its worker died before that was durable.
        assert len(calls) <= 1 + KILLS
        for member in calls[0].question.get("qs", [calls[0].question.get("q")]):
            batches_of[member].add(key)
    assert set(batches_of) == set(rows)
    assert {len(keys) for keys in batches_of.values()} == {1}, "no member is bought in two batches"
    assert len(ledger.by_key()) < len(rows) / SIZE * 2, "they were batches"
