"""How many inputs each target gets: 20,000 in CI, more by hand: ROWMILL_TEST_FUZZ=1000000.

Hypothesis and the setting up of a role cost more than most inputs, so an example is of eight: they go
through the same door one after the other, as they would in a topic, and share the bounds of one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

BY_CHANCE = os.environ.get("ROWMILL_TEST_FUZZ")
INPUTS = int(BY_CHANCE or "20000")
AT_ONCE = 8
BYTES = (7, 22)
"""What an input is made of: its place in the corpus, and one to four changes."""

T = TypeVar("T")

fuzzed = settings(
    max_examples=max(1, INPUTS // AT_ONCE),
    deadline=None,  # `bounds.bounded` measures, and tries again before it calls it slow
    print_blob=True,
    derandomize=BY_CHANCE is None,  # a commit's check is the same each time; by hand it is new
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=list(HealthCheck),
)


def several(change: Callable[[bytes], T]) -> st.SearchStrategy[tuple[T, ...]]:
    """Return eight inputs an example, each made by `change` of 7 to 22 bytes.

    Of 20,000 byte strings that Hypothesis draws itself 3,500 are different, as it tries what lies
    near; of as many that follow from numbers that it draws, all are. The former shrink.
    """

    def spread(seed: int) -> tuple[bytes, ...]:
        chance = random.Random(seed)
        return tuple(chance.randbytes(chance.randint(*BYTES)) for _ in range(AT_ONCE))

    near = st.tuples(*[st.binary(min_size=BYTES[0], max_size=BYTES[1])] * AT_ONCE)
    far = st.integers(0, (1 << 64) - 1).map(spread)
    return st.one_of(near, far, far, far).map(lambda parts: tuple(map(change, parts)))
