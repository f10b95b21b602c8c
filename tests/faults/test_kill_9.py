"""kill -9 of each part in the middle of 2,000 rows: nothing is lost, nothing answered is paid twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.kit.mill import Mill, many_companies, until_calls

ROWS = 2_000
ROWS_OPEN = 50
"""Of a run that says nothing else; each has one call in flight."""

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]


@pytest.mark.behaviour("R4")
@pytest.mark.parametrize("victim", ["rows", "dispatch", "sink", "kafka"])
def test_kill_9_in_the_middle_loses_no_row_and_repeats_only_open_calls(
    victim: str, tmp_path: Path
) -> None:
    with Mill(tmp_path) as mill:
        mill.up()
        run = mill.start_run(many_companies(tmp_path / "in.csv", ROWS), "killed")
        until_calls(mill, ROWS // 2)
        if victim == "kafka":
            mill.restart_broker()
        else:
            mill.kill_9(victim)
        code, report = run.done(within_s=300)
        assert (code, report["completed"], report["pending"]) == (0, ROWS, 0)
        exported = Counter(row["Symbol"] for row in run.rows())
        assert exported == Counter({f"S{number:06d}": 1 for number in range(ROWS)})
        repeated = mill.provider.repeated_keys()
        if victim == "dispatch":
            assert len(repeated) <= ROWS_OPEN, "only calls that were in flight"
            assert all(times == 2 for times in repeated.values())
        else:
            assert repeated == {}
