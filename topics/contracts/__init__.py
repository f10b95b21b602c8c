"""The contracts: what a record's value holds, a module a topic or pair of topics."""

from rowmill.topics.contracts.base import Contract
from rowmill.topics.contracts.calls import CallError, ProviderResult, ToolRequest
from rowmill.topics.contracts.limits import Draw, DrawAnswer, DrawEntry
from rowmill.topics.contracts.pacing import LaneEntry
from rowmill.topics.contracts.receipts import (
    Barrier,
    Forget,
    ReceiptEntry,
    Renewal,
    Settlement,
)
from rowmill.topics.contracts.rows import Cell, RowCompleted, RowEntry, RowInput
from rowmill.topics.contracts.runs import (
    DatasetEvent,
    DeadLetter,
    LaneRecord,
    PlayReference,
    RunHalted,
    RunOptions,
    RunRecord,
    RunUnserved,
)

__all__ = [
    "Barrier",
    "CallError",
    "Cell",
    "Contract",
    "DatasetEvent",
    "DeadLetter",
    "Draw",
    "DrawAnswer",
    "DrawEntry",
    "Forget",
    "LaneEntry",
    "LaneRecord",
    "PlayReference",
    "ProviderResult",
    "ReceiptEntry",
    "Renewal",
    "RowCompleted",
    "RowEntry",
    "RowInput",
    "RunHalted",
    "RunOptions",
    "RunRecord",
    "RunUnserved",
    "Settlement",
    "ToolRequest",
]
