"""Scenes of durability: what must come first, what is committed, what is read back, chunks."""

from __future__ import annotations

from typing import Any

from tests.history.finals import Finals, Rebuilt, TopicRecord
from tests.history.takeovers import RECEIPTS
from tests.unit.history.scenes import Scene, breaks, innocent

RESULTS = "provider.results"
REQUESTS = "tool.requests"


@breaks("INV19", "receipt r1")
def sent_before_running_was_durable(scene: Scene) -> None:
    scene.send(0, running=False)
    scene.note(1, "dispatch-1", "running", receipt="r1", lease="l1")


@breaks("INV19", "receipt r1")
def told_before_the_receipt_was_durable(scene: Scene) -> None:
    scene.send(0)
    scene.hear(10)
    scene.tell(11)
    scene.keep(12)


@innocent
def told_by_the_successor_of_one_that_died_before_it_said_kept(scene: Scene) -> None:
    scene.start("dispatch-1", instance="i")
    scene.send(0)
    scene.hear(10)
    scene.note(12, "runner-1", "killed", target="dispatch-1")
    scene.start("dispatch-2", 2_000, epoch=2, instance="i")
    scene.tell(2_010, "dispatch-2", epoch=2)
    value = {"receipt": {"state": "completed"}}
    scene.finals = Finals(topics={RECEIPTS: [TopicRecord(0, 5, "r1", value)]})


@innocent
def told_by_one_that_came_back_and_read_its_own_answer(scene: Scene) -> None:
    """Its record arrived before it took the partition again; the broker's word for it came later."""
    scene.start("dispatch-1")
    scene.send(0)
    scene.hear(10)
    scene.note(15, "dispatch-1", "given_up", partitions=[0])
    scene.note(20, "dispatch-1", "taken", partition=0, epoch=2)
    scene.tell(25, epoch=2)
    scene.note(30, "dispatch-1", "written", topic=RECEIPTS, partition=0, offset=5, key="r1")
    scene.keep(30)
    answer = TopicRecord(0, 5, "r1", {"receipt": {"state": "completed"}}, 1)
    owner = TopicRecord(0, 6, "!epoch", {"epoch": 2, "instance": "dispatch-1"}, 2)
    scene.finals = Finals(topics={RECEIPTS: [answer, owner]})


@breaks("INV19", "receipt r1")
def told_by_one_that_came_back_before_its_own_answer_was_there(scene: Scene) -> None:
    told_by_one_that_came_back_and_read_its_own_answer(scene)
    assert scene.finals.topics is not None
    scene.finals.topics[RECEIPTS].reverse()


@breaks("INV19", "receipt r1")
def told_by_a_successor_though_the_changelog_has_no_answer(scene: Scene) -> None:
    told_by_the_successor_of_one_that_died_before_it_said_kept(scene)
    value = {"receipt": {"state": "running"}}
    scene.finals = Finals(topics={RECEIPTS: [TopicRecord(0, 5, "r1", value)]})


@breaks("INV19", "row a of run x")
def entered_before_it_was_published(scene: Scene) -> None:
    scene.send(-100)
    scene.end_row(0)
    scene.events[-1]["at"] = -1


@breaks("INV19", "row a of run x")
def its_input_was_done_before_its_ending(scene: Scene) -> None:
    scene.send(-100)
    scene.feed(0)
    scene.done(9, "rows-1", "rows.input", 0)
    scene.end_row(10)


def _asked(scene: Scene, result_ms: float, done_ms: float) -> None:
    question = {"run": "x", "row": "a", "call": "first/0"}
    scene.finals = Finals(
        topics={
            REQUESTS: [TopicRecord(0, 0, "r1", {"kind": "ask", **question})],
            RESULTS: [TopicRecord(0, 0, "a", question)],
        }
    )
    scene.send(-100)
    where = {"topic": RESULTS, "partition": 0, "offset": 0, "key": "a"}
    scene.note(result_ms, "dispatch-1", "written", **where)
    scene.done(done_ms, "dispatch-1", REQUESTS, 0)


@innocent
def a_request_done_after_its_result(scene: Scene) -> None:
    _asked(scene, result_ms=10, done_ms=11)


@breaks("INV19", "run x")
def a_request_done_before_its_result(scene: Scene) -> None:
    _asked(scene, result_ms=11, done_ms=10)


@innocent
def an_older_copy_of_a_request_gives_way(scene: Scene) -> None:
    _asked(scene, result_ms=11, done_ms=10)
    value = {"kind": "ask", "run": "x", "row": "a", "call": "first/0"}
    assert scene.finals.topics is not None
    scene.finals.topics[REQUESTS].append(TopicRecord(0, 7, "r1", value))


# --- offsets ----------------------------------------------------------------------------------------


@innocent
def commits_that_follow_what_is_done(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.done(1, "dispatch-1", REQUESTS, 0, 2)
    scene.commit(2, "dispatch-1", REQUESTS, 1)
    scene.note(3, "runner-1", "killed", target="dispatch-1")
    scene.start("dispatch-2", 2_000, epoch=2)
    scene.done(2_001, "dispatch-2", REQUESTS, 1)
    scene.commit(2_002, "dispatch-2", REQUESTS, 3)
    scene.finals = Finals(ends={REQUESTS: {0: 3}}, committed={REQUESTS: {0: 3}})


@breaks("INV20", "partition 0 of tool.requests")
def committed_past_open_work(scene: Scene) -> None:
    scene.done(1, "dispatch-1", REQUESTS, 0, 2)
    scene.commit(2, "dispatch-1", REQUESTS, 3)
    scene.done(3, "dispatch-1", REQUESTS, 1)


@innocent
def an_offset_that_does_not_exist_is_not_waited_for(scene: Scene) -> None:
    scene.done(1, "dispatch-1", REQUESTS, 0, 2)
    scene.commit(2, "dispatch-1", REQUESTS, 3)
    records = [TopicRecord(0, offset, "r", {}) for offset in (0, 2)]
    scene.finals = Finals(topics={REQUESTS: records})


@breaks("INV20", "partition 0 of tool.requests")
def a_commit_that_falls(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.done(1, "dispatch-1", REQUESTS, 0, 1, 2)
    scene.commit(2, "dispatch-1", REQUESTS, 3)
    scene.start("dispatch-2", 2_000, epoch=2)
    scene.commit(2_002, "dispatch-2", REQUESTS, 2)


@innocent
def a_commit_of_a_stopped_process_told_late(scene: Scene) -> None:
    scene.start("dispatch-1")
    scene.done(1, "dispatch-1", REQUESTS, 0, 1, 2)
    scene.start("dispatch-2", 12_000, epoch=2)
    scene.commit(12_002, "dispatch-2", REQUESTS, 3)
    scene.commit(15_000, "dispatch-1", REQUESTS, 2)


@breaks("INV20", "partition 0 of tool.requests")
def a_log_that_is_not_worked_off(scene: Scene) -> None:
    commits_that_follow_what_is_done(scene)
    scene.finals.ends = {REQUESTS: {0: 4}}


# --- read back --------------------------------------------------------------------------------------


def _written(scene: Scene, *records: TopicRecord, topic: str = RESULTS) -> None:
    scene.note(0, "dispatch-1", "written", topic=topic, partition=0, offset=3, key="a")
    scene.finals = Finals(topics={topic: list(records)})


@innocent
def an_acknowledged_record_is_there(scene: Scene) -> None:
    _written(scene, TopicRecord(0, 3, "a", {}))


@breaks("INV21", "record provider.results/0/3")
def an_acknowledged_record_is_gone(scene: Scene) -> None:
    _written(scene, TopicRecord(0, 4, "a", {}))


@breaks("INV21", "record provider.results/0/3")
def another_record_is_at_its_offset(scene: Scene) -> None:
    _written(scene, TopicRecord(0, 3, "b", {}))


@innocent
def a_compacted_record_was_replaced(scene: Scene) -> None:
    _written(scene, TopicRecord(0, 9, "a", {}), topic=RECEIPTS)


@breaks("INV21", "record rowmill-dispatch-receipts-changelog/0/3")
def a_compacted_record_was_not_replaced(scene: Scene) -> None:
    _written(scene, TopicRecord(0, 9, "b", {}), topic=RECEIPTS)


# --- chunks -----------------------------------------------------------------------------------------


def _row(offset: int) -> list[Any]:
    return ["x", f"row-{offset}", 1, 0, offset]


@innocent
def a_chunk_whose_writer_died_before_it_said_so(scene: Scene) -> None:
    scene.chunk(0, 1, [0, 0, 2], _row(0), _row(1))
    scene.chunk(10, 2, [0, 2, 5], ends=False)
    scene.note(11, "runner-1", "killed", target="sink-1")
    scene.chunk(2_000, 1, [0, 5, 6], _row(5), by="sink-2")


@innocent
def a_chunk_that_the_sheet_had_in_part(scene: Scene) -> None:
    scene.chunk(0, 1, [0, 0, 2], _row(0), _row(1))
    scene.chunk(10, 2, [0, 0, 3], _row(0), _row(1), _row(2), had=2)
    scene.chunk(20, 3, [0, 3, 4], _row(3))


@breaks("INV22", "row row-1 of run x")
def a_row_in_two_chunks(scene: Scene) -> None:
    scene.chunk(0, 1, [0, 0, 2], _row(0), _row(1))
    scene.chunk(10, 1, [0, 1, 3], _row(1), _row(2), by="sink-2")


@breaks("INV22", "partition 0 of rows.completed in sheet s")
def a_gap_between_chunks(scene: Scene) -> None:
    scene.chunk(0, 1, [0, 0, 2], _row(0), _row(1))
    scene.chunk(10, 2, [0, 3, 4], _row(3))


@breaks("INV22", "partition 0 of rows.completed in sheet s")
def chunks_that_go_back(scene: Scene) -> None:
    scene.chunk(0, 1, [0, 2, 4], _row(2), _row(3))
    scene.chunk(10, 2, [0, 0, 2], _row(0), _row(1))


@breaks("INV22", "row row-1")
def a_row_that_its_chunk_left_out(scene: Scene) -> None:
    scene.chunk(0, 1, [0, 0, 2], _row(0))
    records = [TopicRecord(0, offset, f"row-{offset}", {"row": offset}) for offset in (0, 1)]
    scene.finals = Finals(topics={"rows.completed": records})


# --- built again ------------------------------------------------------------------------------------


@innocent
def everything_was_built_again(scene: Scene) -> None:
    scene.finals = Finals(rebuilt=Rebuilt(0, receipts_equal=True, sheet_equal=True))


@breaks("INV23", "receipts")
def building_again_called_a_provider(scene: Scene) -> None:
    scene.finals = Finals(rebuilt=Rebuilt(2, receipts_equal=True, sheet_equal=True))


@breaks("INV23", "receipts")
def receipts_are_others_when_built_again(scene: Scene) -> None:
    scene.finals = Finals(rebuilt=Rebuilt(0, receipts_equal=False, sheet_equal=True))


@breaks("INV23", "sheet")
def the_sheet_is_another_when_built_again(scene: Scene) -> None:
    scene.finals = Finals(rebuilt=Rebuilt(0, receipts_equal=True, sheet_equal=False))
