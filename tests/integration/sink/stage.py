"""The test's side: sink processes, runs and rows on the topics, and a look at the sheets."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import cluster_id, end_offsets
from rowmill.streams.adapters.sheet.reading import DatasetMissing, SheetReader
from rowmill.streams.core.identity import row_id
from rowmill.streams.ports import SheetUnusable, Source
from rowmill.topics import codec
from rowmill.topics.catalogue import DEAD_LETTER, ROWS_COMPLETED, RUNS, TopicDefinition
from rowmill.topics.connection import client_options
from rowmill.topics.contracts import (
    Cell,
    DeadLetter,
    PlayReference,
    RowCompleted,
    RunOptions,
    RunRecord,
)
from tests.kit.until import until

SCRIPT = Path(__file__).with_name("sink_process.py")
SETTINGS = (
    "kafka", "topic_prefix", "home", "partitions", "chunk_rows", "session_timeout_s", "heartbeat_s",
    "commit_interval_s",
)  # fmt: skip


@dataclass
class Stage:
    """One mill: its topics, its one sink at a time, and what was produced."""

    settings: Settings
    sink: subprocess.Popen[bytes] | None = None
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """What all sinks logged."""
        path = self.settings.home / "sink.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    async def start(self, *, transaction_s: float = 0) -> None:
        """Start a sink whose transactions stay open that long; wait until it is ready."""
        ready = self.settings.home / f"ready-{time.monotonic_ns()}"
        sink = self.sink = self._spawn(ready, transaction_s)
        await until(lambda: ready.exists() or sink.poll() is not None, within_s=60)
        assert sink.poll() is None, self.log[-3000:]

    def _spawn(self, ready: Path, transaction_s: float) -> subprocess.Popen[bytes]:
        self.settings.home.mkdir(parents=True, exist_ok=True)
        environment = {
            f"ROWMILL_{name.upper()}": str(getattr(self.settings, name)) for name in SETTINGS
        }
        environment["TEST_TRANSACTION_S"] = str(transaction_s)
        with (self.settings.home / "sink.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(SCRIPT), str(self.settings.home / "sink"), str(ready)],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )

    async def end(self, number: signal.Signals, *, within_s: float = 60) -> int:
        """Send a signal and return the exit code."""
        sink = self.sink
        assert sink is not None
        sink.send_signal(number)
        await until(lambda: sink.poll() is not None, within_s=within_s)
        return sink.returncode

    def close(self) -> None:
        """Kill what is left."""
        if self.sink is not None and self.sink.poll() is None:
            self.sink.kill()
            self.sink.wait()

    async def open_run(self, run: str, sheet: Path, *, renewals: int = 0) -> None:
        """Write the record of an open run."""
        record = run_record(run, f"sqlite:///{sheet}", renewals)
        (offset,) = await self.produce(RUNS, [(run, codec.encode(record))])
        self.numbers.setdefault(run, offset)

    async def produce_rows(self, run: str, keys: Iterable[str]) -> None:
        """Write finished rows, as the rows role does."""
        records = []
        for index, key in enumerate(keys):
            row = row_id("leads", key, {})
            record = RowCompleted(
                run=run, run_number=self.numbers[run], life=1, epoch=1, dataset="leads", row=row,
                index=index, status="completed", values={"key": key},
                cells={"v": Cell(status="completed", value=f"of {key}")},
            )  # fmt: skip
            records.append((row, codec.encode(record)))
        await self.produce(ROWS_COMPLETED, records)

    async def produce(
        self, topic: TopicDefinition, records: Iterable[tuple[str, bytes]]
    ) -> list[int]:
        """Write records; return their offsets."""
        producer = AIOKafkaProducer(**client_options(self.settings), linger_ms=20)
        await producer.start()
        try:
            name = self.settings.topic_prefix + topic.name
            sent = [await producer.send(name, value, key=key.encode()) for key, value in records]
            return [(await one).offset for one in sent]
        finally:
            await producer.stop()

    async def dead_letters(self) -> list[DeadLetter]:
        """Return all dead letters so far."""
        topic = self.settings.topic_prefix + DEAD_LETTER.name
        ends = await end_offsets(self.settings, DEAD_LETTER)
        consumer = AIOKafkaConsumer(**client_options(self.settings), auto_offset_reset="earliest")
        await consumer.start()
        try:
            places = [TopicPartition(topic, partition) for partition in ends]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            found: list[DeadLetter] = []
            while len(found) < sum(ends.values()):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [codec.decode(DeadLetter, record.value) for record in records]
            return found
        finally:
            await consumer.stop()

    async def shows_the_end(self, sheet: Path) -> bool:
        """True where the sheet's `next` is the end of each partition, as S4 asks."""
        ends = await end_offsets(self.settings, ROWS_COMPLETED)
        group = f"{self.settings.topic_prefix}rowmill-sink@{await cluster_id(self.settings)}"
        source = Source(group, self.settings.topic_prefix + ROWS_COMPLETED.name)
        try:
            with SheetReader(f"sqlite:///{sheet}") as reader:
                found = reader.next_offsets(source)
        except SheetUnusable:
            return False
        return all(found.get(partition, 0) >= end for partition, end in ends.items())


def run_record(run: str, sheet: str, renewals: int = 0) -> RunRecord:
    """Return the record of an open run of dataset "leads"."""
    now_ms = time.time_ns() // 1_000_000
    return RunRecord(
        run=run, life=1, claim="c", instance="i", pid=1, state="open", renewals=renewals,
        started_at_ms=now_ms, updated_at_ms=now_ms, dataset="leads", input_columns=["key"],
        output_columns=["v"], play=PlayReference(name="play", digest="d"),
        options=RunOptions(sheet=sheet),
    )  # fmt: skip


def rows_of(sheet: Path, run: str) -> int:
    """Return how many finished rows of a run the sheet counts."""
    try:
        with SheetReader(f"sqlite:///{sheet}") as reader:
            return reader.counts("leads", run).get("completed", 0)
    except (SheetUnusable, DatasetMissing):
        return 0


def keys_of(sheet: Path) -> list[Any]:
    """Return the keys of all rows of the sheet."""
    with SheetReader(f"sqlite:///{sheet}") as reader:
        return [row.values["key"] for row in reader.rows("leads")]


def watch_writes(sheet: Path) -> None:
    """Note each write of a row in the table `writes`, in the writer's own transaction."""
    with closing(sqlite3.connect(sheet)) as connection, connection:
        connection.execute("CREATE TABLE writes (row TEXT)")
        for event in ("INSERT", "UPDATE"):
            connection.execute(
                f"CREATE TRIGGER note_{event} AFTER {event} ON leads BEGIN "
                "INSERT INTO writes VALUES (new._rowmill_row); END"
            )


def writes_of(sheet: Path) -> tuple[int, int]:
    """Return how many writes there were, and of how many rows."""
    with closing(sqlite3.connect(sheet)) as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT row) FROM writes").fetchone()
    return found[0], found[1]
