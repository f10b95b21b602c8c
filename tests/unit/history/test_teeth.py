"""The checker finds each kind of broken promise, and accuses nobody who kept them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.history.checker import INVARIANTS, LEFT_OUT
from tests.unit.history import (
    scenes_of_bounds,
    scenes_of_durability,
    scenes_of_owners,
    scenes_of_pacing,
    scenes_of_paying,
    scenes_of_rows,
)
from tests.unit.history.scenes import INNOCENT, TEETH, Scene, Tooth

REGISTERED = (
    scenes_of_bounds,
    scenes_of_durability,
    scenes_of_owners,
    scenes_of_pacing,
    scenes_of_paying,
    scenes_of_rows,
)
ALL = {f"INV{number}" for number in range(1, 28)}


def test_every_invariant_is_checked_with_a_tooth_or_left_out_with_a_reason() -> None:
    """27 of 27: none may be missing in silence."""
    assert len(REGISTERED) == 6
    checked = [invariant.code for invariant in INVARIANTS]
    assert len(set(checked)) == len(checked)
    assert {tooth.code for tooth in TEETH} == set(checked)
    assert set(checked) | LEFT_OUT.keys() == ALL
    assert not set(checked) & LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


@pytest.mark.parametrize("tooth", TEETH, ids=lambda tooth: f"{tooth.code}-{tooth.name}")
def test_a_broken_promise_is_found_and_named(tooth: Tooth) -> None:
    """The right promise, the right subject; its events are in order."""
    scene = Scene()
    tooth.build(scene)
    found = [one for one in scene.report().violations if one.code == tooth.code]
    assert any(tooth.subject in one.subject for one in found), scene.report()
    for one in found:
        times = [event["at"] for event in one.events]
        assert times == sorted(times)


@pytest.mark.parametrize(("name", "build"), INNOCENT, ids=[name for name, _ in INNOCENT])
def test_what_only_looks_bad_is_not_accused(name: str, build: Callable[[Scene], None]) -> None:
    """A false alarm would cost as much as a missed one."""
    scene = Scene()
    build(scene)
    report = scene.report()
    assert report.ok, f"{name}\n{report}"
