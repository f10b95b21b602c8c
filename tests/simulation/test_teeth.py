"""Each planted bug is found by the promise that it breaks, within 1,000 seeds."""

from __future__ import annotations

import pytest

from rowmill.streams.dispatch.claims import Claims
from tests.simulation.bugs import BUGS
from tests.simulation.teeth import SEEDS_MAX, Bug, Change, Unplantable, hunt

# What a world's processes were at when it was over is collected, with nobody to run it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_found(bug: Bug) -> None:
    known = [] if bug.seed is None else [bug.seed]
    assert hunt(bug, [*known, *range(SEEDS_MAX - 1)]) is not None


def test_a_bug_that_does_not_fit_the_code_says_so() -> None:
    bug = Bug("no bug", ("INV7",), Change.of(Claims, "forget", ("no such words", "")))
    with pytest.raises(Unplantable, match="Claims.forget has no"):
        hunt(bug, range(1))
