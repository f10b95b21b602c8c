"""Any bytes are a record of the contract, or refused in words; the views hold what they held."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given

from rowmill.topics import codec
from rowmill.topics.contracts import Contract, LaneRecord, RunRecord
from rowmill.topics.views import LanesView, RunsView
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import changed_wire
from tests.fuzz.records import ALL, RUN, plain

RUN_PLACE = ALL.index(RUN)


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
@given(several(changed_wire([plain(record) for record in ALL])))
@example([(RUN_PLACE, b"[" * 100_000)])  # RecursionError: one such record ended every worker
@example([(RUN_PLACE, b'{"a":' * 100_000)])
@example([(RUN_PLACE, b'{"schema_version":"%s"}' % (b"9" * 900_000))])  # its reason was as long
def test_any_record_is_read_or_refused_in_words(drawn: Sequence[tuple[int, bytes]]) -> None:
    def look() -> None:
        for number, value in drawn:
            judge(type(ALL[number]), value)
            if isinstance(ALL[number], RunRecord | LaneRecord):
                fold(value)

    bounded(look)


def fold(value: bytes) -> None:
    """The views hold what they held, or a record that may follow it."""
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
