"""A good record of every contract, as plain JSON: what the mutations begin with."""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.plays.specs import Auth, ProviderSpec, Rate, ToolSpec
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Asker, Failure, Lease, Receipt
from rowmill.topics import codec
from rowmill.topics.contracts import (
    Barrier,
    CallError,
    Cell,
    Contract,
    DatasetEvent,
    DeadLetter,
    Forget,
    LaneRecord,
    PlayReference,
    ProviderResult,
    ReceiptEntry,
    Renewal,
    RowCompleted,
    RowEntry,
    RowInput,
    RunOptions,
    RunRecord,
    RunUnserved,
    Settlement,
    ToolRequest,
)

KEY = "0123456789abcdef0123456789abcdef"
ROW = "fedcba9876543210fedcba9876543210"

PROVIDER = ProviderSpec(
    id="p",
    base_url="http://provider.test/v1",
    auth=Auth(kind="header", secret="canary", name="X-Key"),
    headers={"X-Team": "a"},
    limits=(Rate(calls=100, per_s=60),),  # not spread out: its clock stands still
    concurrency=8,
)
TOOL = ToolSpec(id="t", provider="p", path="/t", cost=0.5, stale_after_s=60)

ASK = ToolRequest(
    run="run", life=1, dataset="d", row=ROW, call=f"c/{KEY}", receipt=KEY, tool="t",
    input={"q": "x", "list": [1, 2.5, None]}, reply_partition=3, force="all", force_token="run/1",
    stale_after_s=60, timeout_s=5, wait_s=900,
)  # fmt: skip

RUNNING = Receipt(
    KEY, "t", "p", state="running", asker=Asker("run", 1, ROW, f"c/{KEY}"), purchase="purchase",
    lease=Lease("lease", 1, "other", 20_000), sends=1, first_sent_wall_ms=1_000, opened_wall_ms=900,
)  # fmt: skip
COMPLETED = Receipt(
    KEY, "t", "p", state="completed", asker=RUNNING.asker, purchase="purchase", sends=1,
    output={"company": "x", "size": 7}, cost=0.5, tokens=("run/1",), settled_wall_ms=2_000,
    first_sent_wall_ms=1_000,
)  # fmt: skip
FAILED = Receipt(
    KEY, "t", "p", state="failed", purchase="purchase", sends=2, attempts=2, settled_wall_ms=2_000,
    failure=Failure(FailureKind.TRANSIENT, "503 down", 503),
)  # fmt: skip

RESULT = ProviderResult(
    run="run", life=1, row=ROW, call=f"c/{KEY}", receipt=KEY, tool="t", provider="p",
    status="completed", output={"name": "x"}, sends=1, cost=0.5, epoch=1,
)  # fmt: skip

INPUT = RowInput(
    run="run", life=1, dataset="d", row=ROW, index=0, values={"id": "a", "extra": [1, {"b": None}]}
)

ROW_DONE = RowCompleted(
    run="run-1", run_number=1, life=1, epoch=1, dataset="leads", row=ROW, index=0,
    status="completed", values={"key": "a", "n": 1.5},
    cells={"v": Cell(status="completed", value={"a": 1}, provider="p", completed_at_ms=1_000)},
)  # fmt: skip

RUN = RunRecord(
    run="run", life=1, claim="c", instance="i", pid=1, state="open", started_at_ms=0,
    updated_at_ms=0, dataset="d", input_columns=["id"], output_columns=["v"],
    play=PlayReference(name="p", path="/plays/play.py", digest="x", params={"deep": "1"}),
    options=RunOptions(input="leads.csv", sheet="sqlite:////s.sqlite", limit=5),
    providers=[PROVIDER], tools=[TOOL], sealed_total=10, input_digests=["d"],
)  # fmt: skip

REQUESTS: tuple[Contract, ...] = (
    ASK,
    Renewal(receipt=KEY, lease="lease", duration_ms=20_000),
    Settlement(lease="lease", receipt=COMPLETED),
    Settlement(lease="lease", receipt=FAILED),
    Barrier(id="barrier"),
    Forget(receipt=KEY),
)
ENTRIES: tuple[Contract, ...] = tuple(
    ReceiptEntry(epoch=1, receipt=receipt) for receipt in (RUNNING, COMPLETED, FAILED)
)
ROW_ENTRY = RowEntry(
    epoch=1, run="run", life=1, row=ROW, index=0, status="completed", outputs={"v": 1},
    counts={"completed": 1, "calls": {"p": 1}, "spent": {"p": 0.5}},
)  # fmt: skip
OTHERS: tuple[Contract, ...] = (
    ROW_ENTRY,
    RESULT,
    RESULT.model_copy(
        update={"status": "failed", "error": CallError(kind="permanent", message="no")}
    ),
    INPUT,
    INPUT.model_copy(update={"row": None, "index": None}),
    ROW_DONE,
    ROW_DONE.model_copy(update={"kind": "patch", "status": None}),
    RUN,
    LaneRecord(tool="t", lane="l", version=1, partitions=[0, 1]),
    DatasetEvent(kind="progress", run="run", life=1, dataset="d", at_ms=1, counts={"failed": 1}),
    RunUnserved(run="run", life=1, worker="w", reason="r", at_ms=1),
    DeadLetter(topic="t", partition=0, offset=0, reason="r", at_ms=1, value_base64="AA=="),
)
ALL = (*REQUESTS, *ENTRIES, *OTHERS)


def plain(record: Contract) -> dict[str, Any]:
    """Return a record as it stands in its topic."""
    found: dict[str, Any] = msgspec.json.decode(codec.encode(record))
    return found
