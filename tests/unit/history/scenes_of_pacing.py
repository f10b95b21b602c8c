"""Scenes of pacing: windows, waits, open calls, permits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.history.scenes import Scene, breaks, innocent


def _paced(scene: Scene, *times_ms: float, by: str = "dispatch-1", hears: bool = True) -> None:
    for at_ms in times_ms:
        name = f"{by}-{at_ms}"
        names: dict[str, Any] = {"receipt": f"r{name}", "key": f"k{name}", "lease": f"l{name}"}
        scene.send(at_ms, by, lane="paced", **names)
        if hears:
            scene.hear(at_ms + 10, by, **names)


@innocent
def two_in_any_second(scene: Scene) -> None:
    _paced(scene, 0, 900, 1_000, 1_900, 2_000)


@breaks("INV12", "lane paced")
def three_in_a_second_by_two_owners(scene: Scene) -> None:
    _paced(scene, 0, 900)
    _paced(scene, 950, by="dispatch-2")


@breaks("INV12", "lane paced")
def three_across_the_edge_of_a_second(scene: Scene) -> None:
    _paced(scene, 0, 900, 999.9)


@breaks("INV12", "lane paced")
def three_seen_by_the_provider_in_a_calm_run(scene: Scene) -> None:
    scene.limits = replace(scene.limits, has_faults=False)
    _paced(scene, 0, 500, 1_000)
    for sent_ms, at_ms in ((0, 600), (500, 650), (1_000, 1_001)):
        told = {"key": f"kdispatch-1-{sent_ms}", "tool": "/t", "digest": "d"}
        scene.note(at_ms, "provider-1", "arrived", **told)


@innocent
def nothing_leaves_during_a_wait(scene: Scene) -> None:
    _paced(scene, 0)
    scene.note(20, "dispatch-1", "held", lane="paced", until=2_000_000_000)
    _paced(scene, 2_000)


@innocent
def the_next_owner_did_not_know_of_a_wait(scene: Scene) -> None:
    scene.note(-1, "dispatch-1", "held", lane="paced", until=1_000_000_000)
    _paced(scene, 500, by="dispatch-2")


@breaks("INV13", "lane paced")
def sent_during_a_wait_that_a_former_owner_made_known(scene: Scene) -> None:
    scene.note(-1, "dispatch-1", "held", lane="paced", until=1_000_000_000)
    scene.note(0, "dispatch-1", "reserved", **_block("b1", 0, until=1_000_000_000))
    _paced(scene, 500, by="dispatch-2")


@breaks("INV13", "lane paced")
def sent_during_a_wait(scene: Scene) -> None:
    scene.note(-1, "dispatch-1", "held", lane="paced", until=1_000_000_000)
    scene.note(-0.5, "dispatch-1", "held", lane="paced", until=500_000_000)
    _paced(scene, 999)


@breaks("INV14", "lane paced")
def three_calls_open_of_two(scene: Scene) -> None:
    _paced(scene, 0, 2_000, 4_000, hears=False)


@breaks("INV14", "lane paced")
def three_calls_open_of_two_owners(scene: Scene) -> None:
    _paced(scene, 0, 2_000, hears=False)
    _paced(scene, 4_000, by="dispatch-2", hears=False)


@innocent
def who_died_has_no_call_open(scene: Scene) -> None:
    scene.start("dispatch-1")
    _paced(scene, 0, 2_000, hears=False)
    scene.note(2_500, "runner-1", "killed", target="dispatch-1")
    _paced(scene, 4_000, 5_000, by="dispatch-2", hears=False)


def _block(block: str, permits: int, until: int = 0) -> dict[str, Any]:
    place = {"lane": "paced", "partition": 0, "epoch": 1}
    return {**place, "block": block, "permits": permits, "until": until}


@innocent
def each_call_with_a_permit_of_its_own(scene: Scene) -> None:
    scene.note(-5, "dispatch-1", "reserved", **_block("b1", 2))
    _paced(scene, 0, 500)
    for event in scene.events:
        if event["event"] == "sent":
            event["block"] = "b1"


@breaks("INV15", "block b1")
def three_calls_with_two_permits(scene: Scene) -> None:
    _paced(scene, 2_000)
    each_call_with_a_permit_of_its_own(scene)


@breaks("INV15", "block b1")
def a_block_reserved_twice(scene: Scene) -> None:
    each_call_with_a_permit_of_its_own(scene)
    scene.note(7, "dispatch-1", "reserved", **_block("b1", 2))


@breaks("INV15", "lane paced")
def a_permit_of_a_block_that_was_not_durable_yet(scene: Scene) -> None:
    each_call_with_a_permit_of_its_own(scene)
    scene.events[0]["at"] = 1


@breaks("INV15", "lane paced")
def a_permit_of_a_former_owner(scene: Scene) -> None:
    scene.note(-5, "dispatch-2", "reserved", **_block("b1", 2))
    _paced(scene, 0)
    scene.events[-2]["block"] = "b1"
