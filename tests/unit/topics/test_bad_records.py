"""Records that nobody of ours wrote: refused in a sentence, whatever they hold (issue 4, point 6)."""

from __future__ import annotations

from typing import Any

import pytest

from rowmill.topics import codec
from rowmill.topics.contracts import (
    LaneRecord,
    ReceiptEntry,
    Renewal,
    RowInput,
    RunRecord,
    Settlement,
    ToolRequest,
)
from rowmill.topics.views import LanesView, RunsView

ASK = (
    b'{"run":"r","life":1,"dataset":"d","row":"a","call":"c","receipt":"k","tool":"t","input":{},'
    b'"reply_partition":0,%s}'
)
RECEIPT = b'{"epoch":1,"receipt":{"key":"k","tool":"t","provider":"p","state":"queued",%s}}'


@pytest.mark.parametrize("value", [b"[" * 500_000, b'{"a":' * 500_000, b'{"a":%s1%s}'])
def test_a_record_nested_too_deep_is_refused_and_ends_nobody(value: bytes) -> None:
    if b"%s" in value:  # deep enough to be read here, and not where it would be written again
        value = value % (b"[" * 900, b"]" * 900)
    with pytest.raises(codec.UndecodableRecord, match="nested deeper than 128 levels"):
        codec.decode(RowInput, value)


def test_a_reason_is_a_sentence_even_where_the_record_is_a_megabyte() -> None:
    with pytest.raises(codec.UndecodableRecord) as refused:
        codec.decode_kind({}, "ask", b'{"kind":"%s"}' % (b"x" * 900_000))
    assert len(str(refused.value)) == codec.REASON_CHARS_MAX


@pytest.mark.parametrize(
    "field",
    [
        b'"stale_after_s":"nan"', b'"stale_after_s":"inf"', b'"wait_s":1e308', b'"wait_s":-1',
        b'"timeout_s":1e9', b'"timeout_s":0', b'"receipt":""', b'"receipt":"!epoch"',
        b'"receipt":"\\u0000m"', b'"run":"a/b"', b'"row":"a/7"', b'"row":"%s"' % (b"x" * 300),
        b'"life":9223372036854775808',
    ],
)  # fmt: skip
def test_an_ask_that_no_owner_could_work_with_is_refused(field: bytes) -> None:
    assert codec.decode(ToolRequest, ASK % b'"asked":0')
    with pytest.raises(codec.UndecodableRecord):
        codec.decode(ToolRequest, ASK % field)


@pytest.mark.parametrize(
    "field",
    [
        b'"cost":"nan"', b'"cost":-1', b'"sends":-1', b'"attempts":9223372036854775808',
        b'"lease":{"id":"l","epoch":1,"instance":"i","duration_ms":86400001}', b'"key":"!epoch"',
        b'"state":"running"', b'"state":"failed"',
    ],
)  # fmt: skip
def test_a_receipt_that_could_not_be_read_again_is_refused(field: bytes) -> None:
    assert codec.decode(ReceiptEntry, RECEIPT % b'"cost":1')
    with pytest.raises(codec.UndecodableRecord):
        codec.decode(ReceiptEntry, RECEIPT % field)
    with pytest.raises(codec.UndecodableRecord):
        codec.decode(Settlement, RECEIPT.replace(b'"epoch":1', b'"lease":"l"') % field)


def test_a_renewal_is_for_a_day_at_most() -> None:
    with pytest.raises(codec.UndecodableRecord):
        codec.decode(Renewal, b'{"receipt":"k","lease":"l","duration_ms":86400001}')


def test_a_record_under_another_key_is_no_word_of_that_run_or_tool() -> None:
    fields: dict[str, Any] = {"started_at_ms": 0, "updated_at_ms": 0, "dataset": "d", "pid": 1}
    run = RunRecord(
        run="a", life=1, claim="c", instance="i", state="open",
        play={"name": "p", "digest": "x"}, options={}, **fields,
    )  # fmt: skip
    lane = LaneRecord(tool="t", lane="l", partitions=[0])
    assert RunsView().apply("b", codec.encode(run), 0) is None
    assert LanesView(8).apply("u", codec.encode(lane), 0) is None


def test_a_lane_in_a_partition_that_there_is_not_is_none() -> None:
    """A question sent there would wait for ever, and every commit of its worker with it."""
    lanes = LanesView(2)
    beyond = LaneRecord(tool="t", lane="l", version=9, partitions=[0, 2])
    lane = LaneRecord(tool="t", lane="l", partitions=[0, 1])
    assert lanes.apply("t", codec.encode(beyond), 0) is None
    assert lanes.apply("t", codec.encode(lane), 1) == lane
