"""A delivery and a sheet that tests hold in their hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.core.chunks import Chunk
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.ports import Flushed, Source
from rowmill.streams.sink.flush import Limits, SheetFlush
from rowmill.streams.sink.writer_thread import WriterThread
from rowmill.topics.contracts import PlayReference, RunOptions, RunRecord
from tests.conformance.sheet.writes import SOURCE, row


@dataclass
class HeldDelivery:
    """Stands in for `engine.delivery.Delivery`; remembers its acknowledgement."""

    partition: int
    offset: int
    value: bytes | None
    topic: str = "rows.completed"
    live: bool = True
    acked: bool = False

    def ack(self) -> None:
        self.acked = True


def delivered(key: str, offset: int, partition: int = 0, **fields: object) -> HeldDelivery:
    """Return a delivery of a finished row."""
    return HeldDelivery(partition, offset, msgspec.json.encode(row(key, **fields)))  # type: ignore[arg-type]


@dataclass
class MemorySheet:
    """Fulfils `ports.Sheet` in memory. `fault`: raised by the next flushes while it is set."""

    next: dict[int, int] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    prepared: list[tuple[str, Sequence[str], Sequence[str]]] = field(default_factory=list)
    chunks: list[Chunk[RowWrite]] = field(default_factory=list)
    fault: Callable[[Chunk[RowWrite]], Exception | None] = lambda _chunk: None
    flushes: int = 0
    closed: bool = False

    def prepare(self, dataset: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.prepared.append((dataset, inputs, outputs))

    def next_offsets(self, source: Source) -> Mapping[int, int]:
        assert source == SOURCE
        return dict(self.next)

    def flush(self, source: Source, chunk: Chunk[RowWrite]) -> Flushed:
        assert source == SOURCE
        self.flushes += 1
        error = self.fault(chunk)
        if error is not None:
            raise error
        self.chunks.append(chunk)
        for span in chunk.spans:
            assert self.next.get(span.partition) == span.start
            self.next[span.partition] = span.end
            self.rows += [write.row for write in span.rows]
        return Flushed({span.partition: span.end for span in chunk.spans})

    def close(self) -> None:
        self.closed = True


def run_record(run: str = "run-1", sheet: str = "", state: str = "open") -> RunRecord:
    """Return a run's record."""
    return RunRecord(
        run=run,
        number=1,
        life=1,
        claim="c",
        instance="i",
        pid=1,
        state=state,
        started_at_ms=0,
        updated_at_ms=0,
        dataset="leads",
        input_columns=["key"],
        output_columns=["v"],
        play=PlayReference(name="play", digest="d"),
        options=RunOptions(sheet=sheet),
    )


class Bench:
    """A `SheetFlush` over a `MemorySheet`, and what it told."""

    def __init__(self, sheet: MemorySheet, limits: Limits, open_fault: list[Exception]) -> None:
        self.sheet = sheet
        self.aside: list[tuple[HeldDelivery, str]] = []
        self.pressure: list[bool] = []
        self.failures: list[BaseException] = []
        self.positions: dict[int, int] = {}
        self.flush = SheetFlush(
            "sqlite:////s.sqlite",
            SOURCE,
            WriterThread("sqlite:////s.sqlite", lambda _url: self._open(open_fault)),
            limits,
            SystemClock(),
            positions=lambda: self.positions,
            set_aside=lambda delivery, reason: self.aside.append((delivery, reason)),  # type: ignore[arg-type]
            on_pressure=lambda _flush, pressed: self.pressure.append(pressed),
            fail=self.failures.append,
        )

    def offer(self, delivery: HeldDelivery) -> None:
        """Hand a delivery over as the intake does."""
        write = msgspec.json.decode(delivery.value or b"", type=RowWrite)
        self.flush.offer(delivery, write, run_record())  # type: ignore[arg-type]
        self.positions[delivery.partition] = delivery.offset + 1

    def _open(self, faults: list[Exception]) -> MemorySheet:
        if faults:
            raise faults[0]
        return self.sheet
