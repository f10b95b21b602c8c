"""F31: the broker's clock and its clients' differ by an hour, and no record may be thought old.

A JVM under libfaketime takes seconds for a millisecond's work here, so the clients' clocks are moved: what
Kafka compares, its own time with the records', differs all the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.asking import (
    answers,
    asks_nothing_again,
    completed,
    numbered,
    write_play,
    write_rows,
)
from tests.kit.clocks import MovedClock
from tests.kit.ledger import Ledger
from tests.kit.long import by_hand
from tests.kit.mill import Mill

HOUR_S = 3_600
ROWS = 300

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize(
    "by_s",
    [
        pytest.param(-HOUR_S, id="broker_ahead"),
        pytest.param(HOUR_S, id="broker_behind", marks=by_hand),
    ],
)
def test_a_clock_that_jumps_by_an_hour_loses_no_answer(
    by_s: int, ledger: Ledger, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path / "offset")
    play = write_play(tmp_path / "plays", provider_options="concurrency=20")
    rows = write_rows(tmp_path / "in.csv", numbered(ROWS))
    with Mill(tmp_path, play=play, base_url=ledger.url) as mill:
        mill.up(rows=0, dispatch=0, sink=0)
        for role in ("rows", "dispatch", "sink"):
            mill.worker(role, 0, **clock.env).ready()
        ledger.latency_of = lambda call: 0.05
        run = mill.start_run(rows, "jumped", "--concurrency", "20")
        ledger.until_answered(ROWS // 4)
        clock.move(by_s)
        completed(run, ROWS)
        assert ledger.repeated() == {}
        known, calls = answers(run), len(ledger.calls)
        asks_nothing_again(mill, rows, "again", known, calls)
        clock.move(0)
        asks_nothing_again(mill, rows, "back", known, calls)
