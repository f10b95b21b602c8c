"""Scenes of bounds: memory, the time until all has ended, secrets."""

from __future__ import annotations

from tests.history.finals import Finals
from tests.unit.history.scenes import Scene, breaks, innocent


@innocent
def within_all_bounds(scene: Scene) -> None:
    scene.finals = Finals(memory_mb={"rows-1": 399.0}, canaries=[])
    scene.feed(0)
    scene.note(10, "runner-1", "calm")
    scene.end_row(89_000)


@breaks("INV25", "process rows-1")
def too_much_memory(scene: Scene) -> None:
    scene.finals = Finals(memory_mb={"rows-1": 401.0})


@breaks("INV26", "row a of run x")
def a_row_that_hangs(scene: Scene) -> None:
    scene.feed(0)
    scene.note(10, "runner-1", "calm")


@breaks("INV26", "row a of run x")
def a_row_that_ends_too_late(scene: Scene) -> None:
    scene.feed(0)
    scene.note(10, "runner-1", "calm")
    scene.end_row(90_100)


@breaks("INV27", "topic rows.completed/0/4")
def a_secret_in_a_topic(scene: Scene) -> None:
    scene.finals = Finals(canaries=["topic rows.completed/0/4"])
