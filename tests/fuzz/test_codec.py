"""Any bytes are a record of the contract, or refused in words; the views hold what they held."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from rowmill.topics import codec
from rowmill.topics.contracts import Contract, LaneRecord, RunRecord
from rowmill.topics.views import LanesView, RunsView
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed
from tests.fuzz.mutations import changed_bytes, changed_records, numbered_changes
from tests.fuzz.records import ALL, OTHERS, RUN, plain, wire

CONTRACTS = tuple({type(record) for record in ALL})
VIEWED = [plain(record) for record in OTHERS if isinstance(record, RunRecord | LaneRecord)]


def judge(contract: type[Contract], value: bytes) -> None:
    """The contract takes it, and then writes what it reads again; or it says why not."""
    try:
        record = codec.decode(contract, value)
    except codec.UndecodableRecord as error:
        check_words(error)
    else:
        assert codec.decode(contract, codec.encode(record)) == record


def check_words(error: Exception) -> None:
    assert 5 < len(str(error)) <= codec.REASON_CHARS_MAX, "a reason is a sentence"
    assert str(error).encode()


@fuzzed
@given(numbered_changes([plain(record) for record in ALL]))
def test_a_record_with_an_odd_field_is_read_or_refused_in_words(drawn: tuple[int, object]) -> None:
    number, value = drawn
    bounded(lambda: judge(type(ALL[number]), wire(value)))


@fuzzed
@given(st.sampled_from(CONTRACTS), changed_bytes([codec.encode(record) for record in ALL]))
@example(RunRecord, b"[" * 100_000)  # RecursionError: one such record ended every worker
@example(RunRecord, b'{"a":' * 100_000)
@example(RunRecord, b'{"schema_version":"%s"}' % (b"9" * 900_000))  # its reason was as long
def test_any_bytes_are_read_or_refused_in_words(contract: type[Contract], value: bytes) -> None:
    bounded(lambda: judge(contract, value))


@fuzzed
@given(changed_records(VIEWED).map(wire))
def test_a_view_holds_what_it_held_or_a_record_that_may_follow(value: bytes) -> None:
    def fold() -> None:
        runs, lanes = RunsView(), LanesView(8)
        good = runs.apply("run", codec.encode(RUN), 0)
        for key in ("run", "t", ""):
            changed = runs.apply(key, value, 1)
            assert changed is None or changed.run == key, "a run's record under another's key"
            lane = lanes.apply(key, value, 1)
            assert lane is None or (lane.tool == key and max(lane.partitions) < 8)
        held = runs.get("run")
        assert held is not None
        assert good is not None
        assert held.number == good.number
        assert all(codec.encode(record) for record in runs.all())

    bounded(fold)
