"""A run that may not go on: its limit is reached, or its provider is out of credits. Real workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.asking import completed, dispatch, numbered, share, write_play, write_rows
from tests.kit.ledger import Call, Ledger, arrival
from tests.kit.mill import Mill

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.mark.behaviour("Q5")
def test_three_workers_one_of_them_killed_buy_no_call_above_the_limit(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "in.csv", numbered(400))
    workers = [dispatch(mill, index) for index in range(3)]
    for worker in workers:
        worker.ready()
    share(*workers)
    ledger.hold()
    run = mill.start_run(rows, "limited", "--concurrency", "60", "--max-calls", "100")
    ledger.until_open(30)
    workers[0].kill_9()
    ledger.release()
    code, report = run.done(180)
    assert code == 1
    assert report["state"] == "stopped"
    assert report["completed"] + report["pending"] == 400
    assert "limit of 100 calls" in report["reason"]
    assert len(ledger.by_key()) <= 100

    for _ in range(5):  # what the dead worker had open is taken over after its lease
        code, report = mill.start_run(rows, "limited", "--max-calls", "150").done(180)
        assert (code, report["state"]) == (1, "stopped")
        assert len(ledger.by_key()) <= 150
        if report["completed"] == 150:
            break
    assert report["completed"] == len(ledger.by_key()) == 150, (
        "to the call, whoever died in between"
    )

    rest = mill.start_run(rows, "limited", "--max-calls", "400")
    completed(rest, 400)
    assert len(ledger.by_key()) == 400
    assert all(count == 1 for count in _keys_by_question(ledger).values())


@pytest.mark.behaviour("Q5")
def test_out_of_credits_the_rows_wait_and_a_top_up_asks_only_what_is_missing(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "in.csv", numbered(100))
    play = write_play(tmp_path / "plays", provider_options="concurrency=4")
    credits = {"left": 20}

    def answer(call: Call) -> tuple[int, Any] | bytes | None:
        if credits["left"] == 0:
            return 402, {"error": "no credits"}
        credits["left"] -= 1
        return arrival(call)

    ledger.answer = answer
    worker = dispatch(mill, 0)
    worker.ready()
    code, report = mill.start_run(rows, "poor", play=play).done(120)
    assert code == 1
    assert (report["completed"], report["failed"], report["pending"]) == (20, 1, 79)
    assert "out of credits" in report["reason"]
    assert "no credits" in report["failures"][0]["error"]
    refused = len(ledger.calls) - 20
    assert refused <= 4, "those that were in flight as the first was refused"

    credits["left"] = 1_000
    report = completed(mill.start_run(rows, "poor", "--retry-failed", play=play), 100)
    assert len(ledger.by_key()) == 101, "what failed is another purchase, what waited the same"
    assert len(ledger.calls) == 100 + refused


def _keys_by_question(ledger: Ledger) -> dict[str, int]:
    found: dict[str, set[str]] = {}
    for call in ledger.calls:
        found.setdefault(call.question["q"], set()).add(call.key)
    return {question: len(keys) for question, keys in found.items()}
