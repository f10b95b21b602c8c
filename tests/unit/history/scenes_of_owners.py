"""Scenes of owners: leases, expiries, epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.history.finals import Finals, SheetRow, TopicRecord
from tests.unit.history.scenes import Scene, breaks, innocent


@innocent
def claimed_again_after_an_unsent_lease(scene: Scene) -> None:
    scene.start("dispatch-1")
    told = {"receipt": "r1", "purchase": "p1", "lease": "l0", "epoch": 1, "partition": 0}
    told |= {"tool": "paced.tool", "lane": "free", "expires": 20_000_000_000}
    scene.note(0, "dispatch-1", "claimed", **told)
    scene.send(200, "dispatch-2", epoch=2)


@innocent
def a_former_owners_claim_is_refused_by_its_epoch(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.note(1, "runner-1", "frozen", target="dispatch-1")
    scene.start("dispatch-2", 11_000, epoch=2)
    scene.send(11_100, "dispatch-2", lease="l2", epoch=2)
    scene.note(11_110, "runner-1", "thawed", target="dispatch-1")
    told = {"receipt": "r1", "purchase": "p9", "lease": "l0", "epoch": 1, "partition": 0}
    told |= {"tool": "paced.tool", "lane": "free", "expires": 31_000_000_000}
    scene.note(11_111, "dispatch-1", "claimed", **told)


@breaks("INV16", "receipt r1")
def claimed_while_a_renewed_lease_was_in_force(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.note(10_000, "dispatch-1", "renewed", receipt="r1", lease="l1", expires=30_000_000_000)
    scene.note(11_000, "dispatch-1", "given_up", partitions=[0])
    scene.start("dispatch-2", 12_000, epoch=2)
    scene.send(21_000, "dispatch-2", lease="l2", epoch=2)
    scene.hear(22_000)


@innocent
def claimed_by_a_clock_that_runs_a_little_faster(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.note(10_000, "runner-1", "frozen", target="dispatch-1")
    scene.start("dispatch-2", 19_000, epoch=2)
    scene.send(19_990, "dispatch-2", lease="l2", epoch=2)


@innocent
def bought_anew_after_a_late_answer(scene: Scene) -> None:
    scene.limits = replace(scene.limits, asked_again=True)
    scene.start("dispatch-1")
    scene.send(0)
    scene.keep(100)  # a former owner's answer
    scene.send(200, lease="l2", purchase="p2", key="k2")
    scene.hear(300)


@breaks("INV17", "key k1")
def sent_after_its_own_lease(scene: Scene) -> None:
    scene.send(21_000, lease_ms=LEASE_SHORT)


LEASE_SHORT = 2


@innocent
def sent_under_a_renewed_lease(scene: Scene) -> None:
    scene.send(21_000, lease_ms=2)
    scene.note(20_998.5, "dispatch-1", "renewed", receipt="r1", lease="l1", expires=21_100_000_000)


@breaks("INV17", "key k1")
def sent_after_another_took_the_partition(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.start("dispatch-2", 5_000, epoch=2)
    scene.send(5_100)


@innocent
def taken_again_by_the_same_process(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.note(100, "dispatch-1", "given_up", partitions=[0])
    scene.note(200, "dispatch-1", "taken", partition=0, epoch=2)
    scene.send(300, epoch=2)


@breaks("INV18", "partition 0 of dispatch")
def two_owners_under_one_epoch(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.note(1, "runner-1", "cut", target="dispatch-1")
    scene.start("dispatch-2", 12_000, epoch=1)


@breaks("INV18", "partition 0 of rows")
def an_epoch_that_falls(scene: Scene) -> None:
    scene.start("rows-1", epoch=7)
    scene.start("rows-2", 12_000, epoch=6)


@innocent
def taken_long_ago_and_said_late(scene: Scene) -> None:
    scene.note(0, "runner-1", "frozen", target="dispatch-1")
    scene.start("dispatch-2", 12_000, epoch=8)
    scene.note(13_000, "runner-1", "thawed", target="dispatch-1")
    scene.start("dispatch-1", 13_001, epoch=7)


@breaks("INV18", "row a")
def a_healthy_former_owner_ends_a_row(scene: Scene) -> None:
    scene.start("rows-1")
    scene.start("rows-2", 5_000, epoch=2)
    scene.end_row(5_100)


@innocent
def a_cut_off_owner_ends_a_row_late(scene: Scene) -> None:
    scene.start("rows-1")
    scene.note(1, "runner-1", "cut", target="rows-1")
    scene.start("rows-2", 11_000, epoch=2)
    scene.note(12_000, "runner-1", "mended", target="rows-1")
    scene.end_row(12_001)
    scene.end_row(12_100, "rows-2", epoch=2, offset=1)


def _ending(offset: int, epoch: int, value: str) -> TopicRecord:
    cells: dict[str, Any] = {"first": {"value": value}}
    said = {"run": "x", "run_number": 0, "life": 1, "epoch": epoch, "row": "a"}
    return TopicRecord(0, offset, "a", {**said, "status": "completed", "cells": cells})


@breaks("INV18", "row a")
def the_sheet_shows_a_former_owners_word(scene: Scene) -> None:
    a_cut_off_owner_ends_a_row_late(scene)
    records = [_ending(0, epoch=1, value="old"), _ending(1, epoch=2, value="new")]
    sheet = [SheetRow("a", 0, "completed", None, {"first": "old"})]
    scene.finals = Finals(topics={"rows.completed": records}, sheet=sheet)


@innocent
def the_sheet_ignores_a_former_owners_word(scene: Scene) -> None:
    a_cut_off_owner_ends_a_row_late(scene)
    scene.feed(-10)
    records = [_ending(0, epoch=2, value="new"), _ending(1, epoch=1, value="old")]
    sheet = [SheetRow("a", 0, "completed", None, {"first": "new"})]
    scene.finals = Finals(topics={"rows.completed": records}, sheet=sheet)
