"""Seeds of faults in their short form. The long one, by hand: bash ops/test.sh faults --seeds 300

A seed alone, with its schedule and what it left behind where it fails: python -m tests.faults --seed N
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.seeds.command import REBUILD_EVERY
from tests.faults.seeds.schedule import schedule_of
from tests.faults.seeds.seed import run_seed
from tests.faults.seeds.twins import twin_of
from tests.kit.long import LONG

SEEDS = range(12) if LONG else (0, 1, 3)
"""Twelve once a hundred in a row have passed."""

FOUND = (4,)
"""Seeds that found a bug once: 4, a reset just before a write ended a worker."""

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", sorted({*SEEDS, *FOUND}))
def test_no_promise_is_broken(
    seed: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schedule = schedule_of(seed)
    print(schedule)
    # One folder for all processes of pytest-xdist: a twin is run once.
    twins = tmp_path_factory.getbasetemp().parent / "twins"
    home = tmp_path / "seed"
    again = seed % REBUILD_EVERY == 0
    outcome = run_seed(schedule, home, twin_of(schedule.shape, twins), rebuild=again)
    assert not outcome.problems, "\n".join(outcome.problems)


def test_a_schedule_follows_from_its_seed_alone() -> None:
    assert schedule_of(7) == schedule_of(7)
    assert len({str(schedule_of(seed).faults) for seed in range(50)}) == 50
