"""How many examples each target gets: 20,000 in CI, more by hand: ROWMILL_TEST_FUZZ=1000000."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("ROWMILL_TEST_FUZZ", "20000"))

fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,  # `bounds.bounded` measures, and tries again before it calls it slow
    print_blob=True,
    derandomize=False,
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=list(HealthCheck),
)
