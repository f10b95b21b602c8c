"""Dispatch workers that die, stand still, come and go: no answer is lost, none is bought again.

Long forms, by hand: `ROWMILL_TEST_KILLS=20` for as many deaths, `ROWMILL_TEST_LONG=1` for calls of
60 s under the default lease:

    ROWMILL_TEST_KILLS=20 ROWMILL_TEST_LONG=1 pytest tests/faults/test_takeover.py --timeout 1800
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rowmill.topics.catalogue import RECEIPTS_CHANGELOG, TOOL_REQUESTS
from tests.faults.asking import (
    answers,
    asks_nothing_again,
    completed,
    dispatch,
    numbered,
    share,
    write_play,
    write_rows,
)
from tests.faults.topic import end_of, epochs_fell, read
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill
from tests.kit.until import until_sync
from tests.kit.workers import WorkerProcess

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_800)]

KILLS = int(os.environ.get("ROWMILL_TEST_KILLS", "3"))
LONG = os.environ.get("ROWMILL_TEST_LONG") == "1"
IN_FLIGHT = 100
OPEN_ROWS = 200
"""Two workers, so that each has 100 calls in flight when it dies."""


def die_with_calls_open(ledger: Ledger, victim: WorkerProcess) -> set[str]:
    """Kill a worker; return the keys of its open calls, once the provider has seen them end."""
    victim.kill_9()
    name = f"w{victim.index}"
    until_sync(lambda: all(call.worker != name for call in ledger.open), within_s=10)
    return {key for key, calls in ledger.by_key().items() if calls[-1].ended == "cut"}


@pytest.mark.behaviour("R4")
@pytest.mark.behaviour("Q7")
def test_kill_9_with_100_calls_in_flight_repeats_only_those_and_only_under_their_key(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows = numbered(OPEN_ROWS * (KILLS + 1))
    workers = [dispatch(mill, 0), dispatch(mill, 1)]
    for worker in workers:
        worker.ready()
    share(*workers)
    ledger.hold()
    run = mill.start_run(
        write_rows(tmp_path / "in.csv", rows), "killed", "--concurrency", str(OPEN_ROWS)
    )
    for kill in range(KILLS):
        ledger.until_open(OPEN_ROWS)
        place = kill % 2
        cut = die_with_calls_open(ledger, workers[place])
        if place:
            share(workers[0])  # its session ran out: another instance takes over
        workers[place] = dispatch(mill, place)
        until_sync(lambda: cut <= {call.key for call in ledger.open}, within_s=60)  # noqa: B023
        ledger.release_open()
    ledger.release()
    completed(run, len(rows))
    deaths = sum(call.ended == "cut" for call in ledger.calls)
    assert deaths >= KILLS * IN_FLIGHT // 2, "the deaths met too few open calls"
    for calls in ledger.by_key().values():
        assert len({call.question["q"] for call in calls}) == 1, "a key stands for one question"
        assert len(calls) == 1 + sum(call.ended == "cut" for call in calls)
    assert len(ledger.by_key()) == len(rows), "a question has one key, whoever asks it"
    asks_nothing_again(mill, tmp_path / "in.csv", "again", answers(run), len(ledger.calls))


@pytest.mark.behaviour("R6")
def test_a_worker_frozen_past_its_lease_changes_nothing_that_its_successor_wrote(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    rows = numbered(200)
    frozen, successor = dispatch(mill, 0), dispatch(mill, 1)
    frozen.ready()
    successor.ready()
    share(frozen, successor)
    ledger.hold()
    run = mill.start_run(write_rows(tmp_path / "in.csv", rows), "frozen", "--concurrency", "150")
    ledger.until_open(150)
    assert ledger.of("w0")
    frozen.freeze()
    asked_by_frozen = len(ledger.of("w0"))
    ledger.release()  # what it asked is answered, into the buffers of a process that stands still
    completed(run, len(rows))
    value, calls = answers(run), len(ledger.calls)
    assert all(len(of_key) == 1 + (of_key[0].worker == "w0") for of_key in ledger.by_key().values())
    requests, changelog = (
        end_of(mill.settings, TOOL_REQUESTS),
        end_of(mill.settings, RECEIPTS_CHANGELOG),
    )
    frozen.thaw()
    until_sync(lambda: len(frozen.assignments()) > 1, within_s=60)
    share(frozen, successor)
    assert len(ledger.calls) == calls, "it asked again"
    assert len(ledger.of("w0")) == asked_by_frozen
    late = read(mill.settings, TOOL_REQUESTS, requests)
    assert [record for record in late if record.value["kind"] == "renew"] == []
    assert epochs_fell(read(mill.settings, RECEIPTS_CHANGELOG, changelog)) == []
    assert successor.stop() == 0
    share(frozen)
    asks_nothing_again(mill, tmp_path / "in.csv", "again", value, calls)


@pytest.mark.behaviour("R11")
def test_rolling_restarts_and_scaling_under_load_repeat_no_call(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    """Every fourth call is far longer than a lease."""
    long_s = 60.0 if LONG else 6.0
    ledger.latency_of = lambda call: long_s if call.number % 4 == 0 else 1.0
    rows = numbered(1_200)  # more than all restarts take on a busy machine; the rest goes quickly
    first = dispatch(mill, 0)
    first.ready()
    input_ = write_rows(tmp_path / "in.csv", rows)
    play = write_play(tmp_path / "plays", "patient", tool_options=f"timeout_s={2 * long_s}")
    run = mill.start_run(input_, "rolling", "--concurrency", "16", play=play)
    ledger.until_open(10)
    workers = [first, dispatch(mill, 1), dispatch(mill, 2)]
    share(*workers)
    ledger.until_answered(len(ledger.calls) + 5, within_s=long_s + 60)
    for index in range(3):
        assert workers[index].stop(long_s + 60) == 0
        workers[index] = dispatch(mill, index)
        share(*workers)
    for worker in workers[:2]:
        worker.terminate()
    assert [worker.wait(long_s + 60) for worker in workers[:2]] == [0, 0]
    share(workers[2])
    assert run.process.poll() is None, "the load ended before the last worker was alone"
    ledger.latency_of = lambda call: 0.02
    report = completed(run, len(rows), within_s=long_s + 180)
    assert ledger.repeated() == {}
    assert report["calls"] == len(rows)
