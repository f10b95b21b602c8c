"""Which record of `runs` and `lanes` holds: every reader of the log must say the same."""

from __future__ import annotations

from rowmill.topics.codec import encode
from rowmill.topics.contracts import LaneRecord, PlayReference, RunOptions, RunRecord
from rowmill.topics.contracts.runs import RunState
from rowmill.topics.views import LanesView, RunsView


def run_record(
    claim: str, life: int = 1, state: RunState = "claiming", renewals: int = 0, number: int = -1
) -> RunRecord:
    return RunRecord(
        run="r", number=number, life=life, claim=claim, instance="i", pid=1, renewals=renewals,
        state=state, started_at_ms=0, updated_at_ms=0, dataset="d",
        play=PlayReference(name="p", digest="x"), options=RunOptions(),
    )  # fmt: skip


def folded(*records: RunRecord, first_offset: int = 0) -> RunsView:
    view = RunsView()
    for offset, record in enumerate(records, first_offset):
        view.apply("r", encode(record), offset)
    return view


def holding(view: RunsView) -> RunRecord:
    record = view.get("r")
    assert record is not None
    return record


def test_the_first_claim_of_a_life_wins_whatever_the_other_writes_later() -> None:
    view = folded(run_record("a"), run_record("b"), run_record("b", state="open"))
    assert holding(view).claim == "a"
    assert holding(view).state == "claiming"


def test_a_refused_record_is_reported_as_none() -> None:
    view = folded(run_record("a"))
    assert view.apply("r", encode(run_record("b")), 1) is None
    assert view.apply("r", encode(run_record("a", renewals=1)), 2) is not None


def test_a_higher_life_replaces_a_lower_one_for_good() -> None:
    view = folded(run_record("a"), run_record("b", life=2), run_record("a", state="paused"))
    assert (holding(view).life, holding(view).state) == (2, "claiming")
    assert view.claim_offset("r") == 1


def test_a_runs_number_is_the_offset_of_its_first_record_over_all_lives() -> None:
    view = folded(run_record("a"), run_record("b", life=2), first_offset=41)
    assert holding(view).number == 41


def test_a_number_that_compaction_left_only_in_the_record_holds() -> None:
    assert holding(folded(run_record("a", number=7, life=3), first_offset=900)).number == 7


def test_unreadable_records_and_tombstones_do_no_harm() -> None:
    view = folded(run_record("a"))
    assert view.apply("r", b"{not json", 1) is None
    assert holding(view).claim == "a"
    assert view.apply("r", None, 2) is None
    assert view.get("r") is None
    assert list(view.all()) == []


def test_runs_are_listed_oldest_first() -> None:
    view = RunsView()
    view.apply(
        "younger", encode(run_record("a", number=9).model_copy(update={"run": "younger"})), 9
    )
    view.apply("older", encode(run_record("a", number=3).model_copy(update={"run": "older"})), 10)
    assert [record.run for record in view.all()] == ["older", "younger"]


def lane(partitions: list[int], version: int = 1) -> bytes:
    return encode(LaneRecord(tool="t", lane="p", version=version, partitions=partitions))


def test_the_first_lane_of_a_version_holds_and_only_a_higher_version_replaces_it() -> None:
    view = LanesView(8)
    view.apply("t", lane([1]), 0)
    assert view.apply("t", lane([2]), 1) is None
    found = view.get("t")
    assert found is not None
    assert found.partitions == [1]
    view.apply("t", lane([3], version=2), 2)
    view.apply("t", lane([4]), 3)
    view.apply("t", None, 4)
    found = view.get("t")
    assert found is not None
    assert found.partitions == [3]
