"""Simulated seeds end without a violation, and each is the same every time.

bash ops/test.sh simulation --seeds 1000000
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import msgspec
import pytest

from tests.simulation.seeds import simulate

# What a world's processes were at when it was over is collected, with nobody to run it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FOUND = (4447, 4673, 9454, 20058, 27128, 35533, 87140)
"""Seeds that failed once. Other worlds may come of them since; they cost nothing."""

SEEDS = 60
"""Here only: the stage runs 10,000."""


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_seeds_of_faults_end_with_every_promise_kept(first: int) -> None:
    failed = {
        outcome.seed: outcome.problems
        for outcome in map(simulate, range(first, first + 20))
        if outcome.problems
    }
    assert not failed


def test_seeds_that_failed_once_pass() -> None:
    assert not {seed: found for seed in FOUND if (found := simulate(seed).problems)}


def digest(seed: int) -> str:
    """Return a seed's whole history as one number."""
    return hashlib.sha256(msgspec.json.encode(simulate(seed).history.events)).hexdigest()


def test_a_seed_is_the_same_every_time() -> None:
    here = [digest(seed) for seed in range(3)]
    assert here == [digest(seed) for seed in range(3)]
    code = (
        "from tests.simulation.command import quieten; quieten();"
        "from tests.simulation.test_seeds import digest; print([digest(n) for n in range(3)])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "ROWMILL_LEASE_S": "3"}
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.strip() == str(here)
