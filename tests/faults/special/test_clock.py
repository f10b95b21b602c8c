"""F31: the broker's clock jumps; records are stamped with it, and nothing may be thought old."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.faults.asking import (
    answers,
    asks_nothing_again,
    completed,
    numbered,
    write_play,
    write_rows,
)
from tests.kit.broker import OwnBroker
from tests.kit.clocks import MovedClock
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill

HOUR_S = 3_600
ROWS = 300

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_a_broker_whose_clock_jumps_loses_no_answer(
    by_s: int, ledger: Ledger, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path / "offset")
    broker = OwnBroker(tmp_path)
    with patch.dict(os.environ, clock.env):
        broker.start()
    play = write_play(tmp_path / "plays", provider_options="concurrency=20")
    port = broker.settings.kafka_port
    rows = write_rows(tmp_path / "in.csv", numbered(ROWS))
    with Mill(tmp_path, play=play, base_url=ledger.url, kafka_port=port) as mill:
        mill.up()
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
    broker.stop()
