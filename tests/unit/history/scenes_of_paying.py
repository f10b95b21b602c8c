"""Scenes of paying: repeats, keys, what is bought twice."""

from __future__ import annotations

from dataclasses import replace

from tests.history.finals import Finals, TopicRecord
from tests.history.lives import MS
from tests.history.takeovers import RECEIPTS
from tests.unit.history.scenes import Scene, breaks, innocent

# --- sent again -------------------------------------------------------------------------------------


@innocent
def one_call_answered(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.note(1, "provider-1", "arrived", key="k1", tool="/t", digest="d")
    scene.note(2, "provider-1", "booked", key="k1")
    scene.hear(30)
    scene.keep(33)
    scene.tell(34)


@innocent
def sent_again_after_a_503(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.hear(30, outcome="transient", status=503, retryable=True)
    scene.send(600, lease="l2")
    scene.hear(640, lease="l2")


@innocent
def sent_again_after_no_connection(scene: Scene) -> None:
    scene.send(0, idempotent=False)
    scene.hear(30, outcome="unreachable", retryable=True, reached=False, maybe_booked=False)
    scene.send(600, lease="l2", idempotent=False)


@innocent
def killed_between_answer_and_receipt(scene: Scene) -> None:
    scene.start("dispatch-1", instance="i")
    scene.send(0)
    scene.hear(30)
    scene.note(31, "runner-1", "killed", target="dispatch-1")
    scene.start("dispatch-2", 2_000, epoch=2, instance="i")
    scene.send(2_010, "dispatch-2", lease="l2", epoch=2)
    scene.hear(2_040, "dispatch-2", lease="l2")
    scene.keep(2_045, "dispatch-2", epoch=2)


@innocent
def frozen_past_its_lease(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.note(10, "runner-1", "frozen", target="dispatch-1")
    scene.start("dispatch-2", 11_000, epoch=2)
    scene.send(31_100, "dispatch-2", lease="l2", epoch=2)
    scene.note(31_110, "runner-1", "thawed", target="dispatch-1")
    scene.hear(31_111)  # too late: it goes to the present owner
    scene.note(31_130, "dispatch-1", "given_up", partitions=[0])
    scene.hear(31_200, "dispatch-2", lease="l2")
    scene.keep(31_210, "dispatch-2", epoch=2)


@innocent
def what_a_cut_off_owner_kept_too_late_does_not_count(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.hear(5)
    scene.note(6, "runner-1", "cut", target="dispatch-1")
    scene.start("dispatch-2", 11_000, epoch=2)
    scene.note(25_000, "runner-1", "mended", target="dispatch-1")
    scene.keep(25_001)
    scene.send(31_100, "dispatch-2", lease="l2", epoch=2)
    scene.hear(31_200, "dispatch-2", lease="l2")


@innocent
def renewed_and_answered_once_it_was_taken_over(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.note(7_000, "runner-1", "fault", kind="broker down", target="kafka")
    scene.hear(15_000, outcome="permanent", status=400)
    scene.start("dispatch-2", 20_100, epoch=2)
    taken = {"receipt": "r1", "purchase": "p1", "lease": "l1", "state": "queued"}
    scene.note(20_200, "dispatch-2", "taken_over", **taken)
    scene.note(20_201, "runner-1", "healed", kind="broker down", target="kafka")
    renewal = {"receipt": "r1", "lease": "l1", "expires": round(27_500 * MS)}
    scene.note(20_202, "dispatch-1", "renewed", **renewal)
    scene.send(20_300, "dispatch-2", lease="l2", epoch=2)


@innocent
def its_process_ended_by_itself_with_the_broker_away(scene: Scene) -> None:
    scene.start("dispatch-1", instance="i")
    scene.send(0)
    scene.note(900, "runner-1", "ended", target="dispatch-1", code=3)
    scene.start("dispatch-2", 2_000, epoch=2, instance="i")
    scene.send(2_010, "dispatch-2", lease="l2", epoch=2)


@breaks("INV7", "key k1")
def sent_again_after_its_answer(scene: Scene) -> None:
    scene.send(0)
    scene.hear(30)
    scene.send(600, lease="l2")


@breaks("INV7", "key k1")
def sent_again_after_its_receipt_was_durable(scene: Scene) -> None:
    killed_between_answer_and_receipt(scene)
    scene.keep(30.5)


@breaks("INV7", "key k1")
def sent_a_fourth_time_after_three_deaths(scene: Scene) -> None:
    for life in range(4):
        by, begin = f"dispatch-{life}", life * 3_000
        scene.start(by, begin - 100, epoch=life + 1, instance="i")
        scene.send(begin, by, lease=f"l{life}", epoch=life + 1)
        scene.note(begin + 100, "runner-1", "killed", target=by)


@breaks("INV7", "key k1")
def a_fault_of_the_code_excuses_nothing(scene: Scene) -> None:
    scene.start("dispatch-1", instance="i")
    scene.send(0)
    scene.hear(5)
    scene.note(900, "runner-1", "ended", target="dispatch-1", code=1)
    scene.start("dispatch-2", 2_000, epoch=2, instance="i")
    scene.send(2_010, "dispatch-2", lease="l2", epoch=2)


@breaks("INV7", "receipt r1")
def bought_again_after_it_was_completed(scene: Scene) -> None:
    one_call_answered(scene)
    scene.send(900, purchase="p2", key="k2", lease="l2")


@innocent
def bought_again_because_it_was_forced(scene: Scene) -> None:
    bought_again_after_it_was_completed(scene)
    scene.limits = replace(scene.limits, asked_again=True)


@innocent
def bought_again_by_force_once_a_handed_over_answer_was_kept(scene: Scene) -> None:
    """Who kept it died before it said so; its successor read it in the changelog."""
    scene.limits = replace(scene.limits, asked_again=True)
    scene.start("dispatch-1")
    scene.send(0)
    scene.start("dispatch-2", 20, epoch=2, instance="i")
    scene.hear(30)
    scene.note(40, "runner-1", "killed", target="dispatch-2")
    scene.start("dispatch-3", 2_000, epoch=3, instance="i")
    scene.send(2_010, "dispatch-3", purchase="p2", key="k2", lease="l2", epoch=3)
    settled = {"receipt": {"purchase": "p1", "state": "completed"}}
    owner = TopicRecord(0, 6, "!epoch", {"epoch": 3, "instance": "i"}, 3)
    scene.finals = Finals(topics={RECEIPTS: [TopicRecord(0, 5, "r1", settled, 2), owner]})


@breaks("INV7", "receipt r1")
def bought_again_by_force_before_a_handed_over_answer_was_kept(scene: Scene) -> None:
    bought_again_by_force_once_a_handed_over_answer_was_kept(scene)
    assert scene.finals.topics is not None
    scene.finals.topics[RECEIPTS].reverse()


@innocent
def bought_again_after_it_failed(scene: Scene) -> None:
    scene.send(0)
    scene.hear(30, outcome="transient", status=500, retryable=True)
    scene.keep(32, state="failed")
    scene.send(900, purchase="p2", key="k2", lease="l2")


@breaks("INV7", "receipt r1")
def bought_again_while_the_first_was_under_way(scene: Scene) -> None:
    scene.send(0)
    scene.send(900, "dispatch-2", purchase="p2", key="k2", lease="l2", epoch=2)


@breaks("INV7", "key k1")
def the_client_repeats_a_request_by_itself(scene: Scene) -> None:
    one_call_answered(scene)
    scene.note(3, "provider-1", "arrived", key="k1", tool="/t", digest="d")


# --- together ---------------------------------------------------------------------------------------


@breaks("INV8", "key k1")
def two_owners_send_at_once(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.send(0)
    scene.start("dispatch-2", 400, epoch=2)
    scene.send(500, "dispatch-2", lease="l2", epoch=2)
    scene.hear(600)


@breaks("INV8", "key k1")
def frozen_for_less_than_its_lease(scene: Scene) -> None:
    scene.send(0)
    scene.note(10, "runner-1", "frozen", target="dispatch-1")
    scene.note(5_000, "runner-1", "thawed", target="dispatch-1")
    scene.send(12_000, "dispatch-2", lease="l2", epoch=2)


@breaks("INV8", "key k1")
def a_lease_that_ran_out_without_any_fault(scene: Scene) -> None:
    scene.send(0)
    scene.send(25_000, "dispatch-2", lease="l2", epoch=2)


@breaks("INV8", "key k1")
def trouble_of_the_provider_is_no_death_of_the_owner(scene: Scene) -> None:
    scene.send(0)
    scene.note(10, "runner-1", "fault", kind="slow", target="all", code="F39")
    scene.send(25_000, "dispatch-2", lease="l2", epoch=2)


# --- keys -------------------------------------------------------------------------------------------


@breaks("INV9", "key k1")
def one_key_with_two_bodies(scene: Scene) -> None:
    sent_again_after_a_503(scene)
    scene.note(1, "provider-1", "arrived", key="k1", tool="/t", digest="d")
    scene.note(601, "provider-1", "arrived", key="k1", tool="/t", digest="e")


@breaks("INV9", "purchase ('r1', 'p1')")
def a_repeat_under_another_key(scene: Scene) -> None:
    scene.send(0)
    scene.hear(30, outcome="transient", status=503, retryable=True)
    scene.send(600, lease="l2", key="k2")


@breaks("INV9", "key k1")
def booked_twice(scene: Scene) -> None:
    one_call_answered(scene)
    scene.note(3, "provider-1", "booked", key="k1")


@breaks("INV9", "key k1")
def one_key_for_two_questions(scene: Scene) -> None:
    scene.send(0)
    scene.hear(30, outcome="transient", status=503, retryable=True)
    scene.send(600, lease="l2", receipt="r2", purchase="p2")


@breaks("INV10", "receipt r1")
def not_idempotent_and_sent_again_after_a_500(scene: Scene) -> None:
    scene.send(0, idempotent=False)
    scene.hear(30, outcome="transient", status=500, retryable=True)
    scene.send(600, lease="l2", idempotent=False)


@breaks("INV10", "receipt r1")
def not_idempotent_and_sent_again_after_a_death(scene: Scene) -> None:
    scene.start("dispatch-1", instance="i")
    scene.send(0, idempotent=False)
    scene.note(31, "runner-1", "killed", target="dispatch-1")
    scene.start("dispatch-2", 2_000, epoch=2, instance="i")
    scene.send(2_010, "dispatch-2", lease="l2", epoch=2, idempotent=False)


@breaks("INV11", "key k1")
def sent_again_after_its_keys_life(scene: Scene) -> None:
    scene.send(0)
    scene.hear(30, outcome="transient", status=503, retryable=True)
    scene.send(60_001, lease="l2")


@innocent
def what_did_not_reach_the_provider_begins_no_keys_life(scene: Scene) -> None:
    scene.send(0)
    scene.hear(30, outcome="unreachable", retryable=True, reached=False, maybe_booked=False)
    scene.send(60_001, lease="l2")
