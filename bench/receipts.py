"""What receipts cost: N questions looked up, claimed, called and settled, then asked again.

    python -m bench.receipts --count 10000 --rounds 5

Requests are written to `tool.requests` as the rows role writes them and results are read from
`provider.results`, so that nothing but the dispatch role, its broker and the practice provider
(which answers at once) is at work. Each round asks new questions, then the same ones for another
run, which are answered from their receipts. One JSON line: for both, seconds from the first request
to the last result and CPU milliseconds of the dispatch process a receipt, as [min, median, max].
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.measure import TICKS_PER_S, process_table
from bench.provider import BenchProvider, free_port
from rowmill.ops.supervisor import control, records
from rowmill.ops.supervisor.layout import Layout
from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.settings import Settings
from rowmill.streams.core.identity import receipt_key
from rowmill.topics import codec
from rowmill.topics.catalogue import PROVIDER_RESULTS, RUNS, TOOL_REQUESTS
from rowmill.topics.connection import client_options
from rowmill.topics.contracts import PlayReference, RunOptions, RunRecord, ToolRequest

CONCURRENCY = 200
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round took: wall seconds, and CPU seconds of the dispatch process."""

    wall_s: float
    cpu_s: float


class Asker:
    """Stands for the rows role: asks, and counts the answers."""

    def __init__(
        self,
        settings: Settings,
        base_url: str,
        producer: AIOKafkaProducer,
        results: AIOKafkaConsumer,
    ) -> None:
        self._settings = settings
        self._producer = producer
        self._results = results
        self._provider = ProviderSpec(id="practice", base_url=base_url, concurrency=CONCURRENCY)
        self._tool = ToolSpec(id="practice.profile", provider="practice", path="/company")

    async def open_run(self, run: str) -> None:
        """Make a run's tools known to dispatch."""
        record = RunRecord(
            run=run, life=1, claim=run, instance="bench", pid=os.getpid(), state="open",
            started_at_ms=0, updated_at_ms=0, dataset="bench", options=RunOptions(),
            play=PlayReference(name="bench", digest=""),
            providers=[self._provider], tools=[self._tool],
        )  # fmt: skip
        await self._producer.send_and_wait(
            self._wire(RUNS.name), codec.encode(record), key=run.encode()
        )

    async def ask(self, run: str, symbols: list[str]) -> None:
        """Ask for every symbol and return once every answer has come. Raises: TimeoutError."""
        topic = self._wire(TOOL_REQUESTS.name)
        async with asyncio.timeout(TIMEOUT_S):
            for place, symbol in enumerate(symbols):
                request = self._request(run, symbol, place % self._settings.partitions)
                await self._producer.send(
                    topic,
                    codec.encode(request),
                    key=request.receipt.encode(),
                    partition=request.reply_partition,
                )
            left = len(symbols)
            while left > 0:
                fetched = await self._results.getmany(timeout_ms=100)
                left -= sum(map(len, fetched.values()))

    def _request(self, run: str, symbol: str, partition: int) -> ToolRequest:
        question = {"symbol": symbol}
        tool = self._tool
        key = receipt_key(
            self._settings.organisation, "default", tool.id, 1, self._provider.host, question
        )
        return ToolRequest(
            run=run, life=1, dataset="bench", row=symbol, call=f"profile/{key}", receipt=key,
            tool=tool.id, input=question, reply_partition=partition,
        )  # fmt: skip

    def _wire(self, topic: str) -> str:
        return f"{self._settings.topic_prefix}{topic}"


@asynccontextmanager
async def asker(settings: Settings, base_url: str) -> AsyncIterator[Asker]:
    """Yield an asker that is connected."""
    options = client_options(settings)
    producer = AIOKafkaProducer(**options, linger_ms=5, max_batch_size=256 << 10)
    results = AIOKafkaConsumer(
        f"{settings.topic_prefix}{PROVIDER_RESULTS.name}",
        **options,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await producer.start()
    await results.start()
    try:
        yield Asker(settings, base_url, producer, results)
    finally:
        await results.stop()
        await producer.stop()


async def measure(settings: Settings, base_url: str, pid: int, count: int, rounds: int) -> None:
    """Play the rounds, each in both forms, and print the line."""
    bought, reused = [], []
    async with asker(settings, base_url) as one:
        for number in range(-1, rounds):  # the first, uncounted, warms the processes up
            symbols = [f"R{number}-{place}" for place in range(count if number >= 0 else 500)]
            costs = [
                await _timed(one, f"run{number}{form}", symbols, pid)
                for form in ("bought", "reused")
            ]
            if number >= 0:
                bought.append(costs[0])
                reused.append(costs[1])
    line = {"receipts": count, "rounds": rounds, "load1": round(os.getloadavg()[0], 2)}
    print(json.dumps(line | _spread("bought", bought, count) | _spread("reused", reused, count)))


async def _timed(one: Asker, run: str, symbols: list[str], pid: int) -> Cost:
    await one.open_run(run)
    began_s, began_ticks = time.monotonic(), process_table()[pid].own
    await one.ask(run, symbols)
    wall_s = time.monotonic() - began_s
    return Cost(wall_s, (process_table()[pid].own - began_ticks) / TICKS_PER_S)


def _spread(name: str, costs: list[Cost], count: int) -> dict[str, list[float]]:
    def three(values: list[float]) -> list[float]:
        return [round(one, 3) for one in (min(values), median(values), max(values))]

    return {
        f"{name}_wall_s": three([cost.wall_s for cost in costs]),
        f"{name}_cpu_ms_each": three([cost.cpu_s / count * 1000 for cost in costs]),
    }


def main() -> None:
    """Measure as the arguments say; everything started is ended, whatever happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowmill-receipts-")))
        settings = Settings(home=home, kafka="", kafka_port=free_port(), sheet="", drain_s=10)
        provider = BenchProvider.start(0, home / "provider.log")
        stack.callback(provider.stop)
        stack.callback(control.down, settings)
        control.up(
            settings, [home], {"dispatch": 1}, note=lambda text: print(text, file=sys.stderr)
        )
        record = records.read(
            Layout.of(settings).worker_record("dispatch", 0), records.WorkerRecord
        )
        assert record is not None
        uvloop.run(measure(settings, provider.url, record.pid, given.count, given.rounds))
        counts = provider.counts()
        assert counts.repeated == 0, f"{counts.repeated} questions were bought again"


if __name__ == "__main__":
    main()
