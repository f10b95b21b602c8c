"""How many inputs each target gets: 20,000 in CI, more by hand: ROWMILL_TEST_FUZZ=1000000.

Hypothesis and the setting up of a role cost more than most inputs, so an example is of four: they go
through the same door one after the other, as they would in a topic, and share the bounds of one.
"""

from __future__ import annotations

import os
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

BY_CHANCE = os.environ.get("ROWMILL_TEST_FUZZ")
INPUTS = int(BY_CHANCE or "20000")
AT_ONCE = 4

T = TypeVar("T")

fuzzed = settings(
    max_examples=max(1, INPUTS // AT_ONCE),
    deadline=None,  # `bounds.bounded` measures, and tries again before it calls it slow
    print_blob=True,
    derandomize=BY_CHANCE is None,  # a commit's check is the same each time; by hand it is new
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=list(HealthCheck),
)


def four(inputs: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    """Return four inputs an example."""
    return st.tuples(*[inputs] * AT_ONCE)
