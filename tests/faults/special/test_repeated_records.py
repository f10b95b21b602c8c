"""F22: every record of every data topic arrives twice, as a producer without idempotence would do it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rowmill.topics.catalogue import PROVIDER_RESULTS, ROWS_COMPLETED, ROWS_INPUT, TOOL_REQUESTS
from tests.faults.topic import Ends, repeat
from tests.kit.mill import Mill, many_companies, until_calls

ROWS = 600
BURSTS = 3

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]


@pytest.mark.behaviour("R2")
def test_records_that_arrive_twice_change_no_row_and_buy_nothing_twice(tmp_path: Path) -> None:
    topics = (ROWS_INPUT, TOOL_REQUESTS, PROVIDER_RESULTS, ROWS_COMPLETED)
    begin: dict[str, Ends] = {}
    with Mill(tmp_path, latency_ms=100) as mill:
        mill.up()
        run = mill.start_run(
            many_companies(tmp_path / "in.csv", ROWS), "twice", "--concurrency", "40"
        )
        for burst in range(1, BURSTS + 1):
            until_calls(mill, burst * ROWS // 4)
            repeat(mill.settings, topics, begin)
        assert run.process.poll() is None, "the run ended before its records came again"
        code, report = run.done(within_s=240)
        assert (code, report["completed"], report["pending"]) == (0, ROWS, 0)
        assert report["duplicates"] == 0
        assert set(Counter(row["Symbol"] for row in run.rows()).values()) == {1}
        assert mill.provider.repeated_keys() == {}
        assert mill.provider.calls == 2 * ROWS
        ((rows,),) = mill.sheet('select count(*) from "companies"')
        assert rows == ROWS
