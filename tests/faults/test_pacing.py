"""A lane's limits while its owner is killed, stands still and changes: the provider counts (INV12)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.asking import completed, dispatch, numbered, share, write_play, write_rows
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill
from tests.kit.until import until_sync

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

CALLS, WINDOW_S = 24, 8
"""A worker is back, and another one has taken over, before a window has passed."""

SLACK_S = 0.3
"""How much closer two requests may come on their way here, on a machine that does other things."""


def most_within(times_s: list[float], window_s: float) -> int:
    """Return how many lie in the fullest stretch of that length."""
    begin = most = 0
    for end, time_s in enumerate(times_s):
        while time_s - times_s[begin] >= window_s:
            begin += 1
        most = max(most, end - begin + 1)
    return most


@pytest.mark.behaviour("G2")
def test_no_window_is_exceeded_while_the_lane_changes_its_owner(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    limits = f'limits=[rate("{CALLS}/{WINDOW_S}s")], auth=header("X-Worker", "WORKER")'
    play = write_play(tmp_path / "plays", "paced", provider="paced", provider_options=limits)
    first, second = dispatch(mill, 0), dispatch(mill, 1)
    for worker in (first, second):
        worker.ready()
    share(first, second)
    rows = write_rows(tmp_path / "in.csv", numbered(4 * CALLS))
    run = mill.start_run(rows, "paced", "--concurrency", "96", play=play)

    ledger.until_answered(CALLS // 2)
    owner = first if ledger.of("w0") else second
    other = second if owner is first else first
    owner.kill_9()
    killed = len(ledger.calls)
    owner = dispatch(mill, owner.index)  # the same instance, at once
    until_sync(lambda: len(ledger.calls) > max(killed, CALLS), within_s=60)

    holder = owner if len(ledger.of(f"w{owner.index}")) > killed else other
    holder.freeze()
    frozen = len(ledger.calls)
    until_sync(lambda: len(ledger.calls) > frozen, within_s=60)
    holder.thaw()
    completed(run, 4 * CALLS)

    times_s = [call.arrived_s for call in ledger.calls]
    assert most_within(times_s, WINDOW_S - SLACK_S) <= CALLS
    owners = [call.worker for call in ledger.calls]
    assert any(one != following for one, following in pairwise(owners)), "its owner never changed"
