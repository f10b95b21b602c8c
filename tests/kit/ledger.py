"""A provider that keeps a ledger: who asked what, when, under which key, and whether it heard back.

It runs in a thread of the test, which holds its answers back and lets them go, so that a fault meets
exactly the calls that it should meet.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.kit.threaded import ThreadedServer
from tests.kit.until import until_sync

Ending = Literal["open", "answered", "cut"]
"""cut: the caller went away before the answer."""


@dataclass(slots=True, eq=False)
class Call:
    """One arrival. Times: monotonic seconds. `worker`: what the asking process calls itself."""

    number: int
    key: str
    worker: str
    question: Any
    arrived_s: float
    ended: Ending = "open"
    ended_s: float = 0.0


Answer = Callable[[Call], tuple[int, Any] | bytes | None]
"""What a call is answered: status and JSON value; the bytes of a whole response, after which the
connection is closed; None: it is reset before any byte. A call that is reset counts as answered: the
provider booked it."""


def response(
    status: int, content: bytes, type_: str = "application/json", length: int | None = None
) -> bytes:
    """Return a whole HTTP response. `length`: what it claims, the truth unless given."""
    claimed = len(content) if length is None else length
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {type_}\r\nContent-Length: {claimed}\r\n\r\n"
    return head.encode() + content


def arrival(call: Call) -> tuple[int, Any]:
    """Answer with the question and the number of its arrival: no two answers are alike."""
    return 200, {"q": call.question.get("q"), "arrival": call.number}


class Ledger(ThreadedServer):
    """The provider. Use it as a context manager.

    `latency_of` (seconds, of one call) and `answer` may be replaced at any time.
    """

    def __init__(self, *, latency_s: float = 0.0, answer: Answer = arrival) -> None:
        super().__init__()
        self.latency_of: Callable[[Call], float] = lambda call: latency_s
        self.answer = answer
        self.calls: list[Call] = []
        self.url = ""
        self._open = asyncio.Event()
        self._server: asyncio.Server | None = None

    def hold(self) -> None:
        """Hold every answer back from now on."""
        self._loop.call_soon_threadsafe(lambda: self._open.clear())
        until_sync(lambda: not self._open.is_set(), within_s=5, every_s=0.001)

    def release(self) -> None:
        """Let all answers go."""
        self._loop.call_soon_threadsafe(lambda: self._open.set())  # the one that it is by then

    def release_open(self) -> None:
        """Answer the calls that are held now, and return once that is done; later ones are held."""
        held = asyncio.run_coroutine_threadsafe(self._release_open(), self._loop).result(10)
        until_sync(lambda: all(call.ended != "open" for call in held), within_s=10)

    async def _release_open(self) -> list[Call]:
        held, gate, self._open = self.open, self._open, asyncio.Event()
        gate.set()
        return held

    @property
    def open(self) -> list[Call]:
        """Calls whose caller waits now."""
        return [call for call in self.calls if call.ended == "open"]

    def by_key(self) -> dict[str, list[Call]]:
        """Return all calls by idempotency key, in order of arrival."""
        found: dict[str, list[Call]] = {}
        for call in list(self.calls):
            found.setdefault(call.key, []).append(call)
        return found

    def repeated(self) -> dict[str, list[Call]]:
        """Return the calls of the keys that came more than once."""
        return {key: calls for key, calls in self.by_key().items() if len(calls) > 1}

    def questions(self) -> Counter[str]:
        """Return how often each question came, under whatever key."""
        return Counter(json.dumps(call.question, sort_keys=True) for call in list(self.calls))

    def of(self, worker: str) -> list[Call]:
        """Return the calls that one worker made."""
        return [call for call in list(self.calls) if call.worker == worker]

    def until_open(self, calls: int, within_s: float = 60) -> list[Call]:
        """Return the calls that are open once at least `calls` are. Raises: TimeoutError."""
        until_sync(lambda: len(self.open) >= calls, within_s=within_s)
        return self.open

    def until_answered(self, calls: int, within_s: float = 60) -> None:
        """Return once at least `calls` calls have been answered. Raises: TimeoutError."""
        until_sync(
            lambda: sum(call.ended == "answered" for call in self.calls) >= calls,
            within_s=within_s,
        )

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1_000)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:-2])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        call = Call(
            number=len(self.calls),
            key=headers.get("idempotency-key", ""),
            worker=headers.get("x-worker", ""),
            question=json.loads(body or b"{}"),
            arrived_s=time.monotonic(),
        )
        self.calls.append(call)
        # The gate of its arrival: a call that is about to wait when all are let go is one of them.
        stayed = await self._wait(reader, call, self._open)
        goes_on = stayed and await self._answer(call, writer)
        call.ended_s = time.monotonic()
        call.ended = "answered" if stayed else "cut"
        return goes_on

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> bool:
        """Answer a call. Returns: whether its connection goes on."""
        answer = self.answer(call)
        if answer is None:
            transport = writer.transport
            assert isinstance(transport, asyncio.WriteTransport)
            transport.abort()
            return False
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return False
        status, value = answer
        content = json.dumps(value).encode()
        writer.write(response(status, content))
        return True

    async def _wait(self, reader: asyncio.StreamReader, call: Call, gate: asyncio.Event) -> bool:
        """Wait as long as the answer takes. Returns: False where the caller went away meanwhile."""
        left = asyncio.ensure_future(_left(reader))
        answer = asyncio.ensure_future(self._due(call, gate))
        try:
            await asyncio.wait({left, answer}, return_when=asyncio.FIRST_COMPLETED)
            return not left.done()
        finally:
            left.cancel()
            answer.cancel()
            await asyncio.gather(left, answer, return_exceptions=True)

    async def _due(self, call: Call, gate: asyncio.Event) -> None:
        await asyncio.sleep(self.latency_of(call))
        await gate.wait()


async def _left(reader: asyncio.StreamReader) -> None:
    """Return once the caller has gone: a caller that waits for an answer sends nothing else."""
    try:
        await reader.read(1)
    except ConnectionError:
        pass
