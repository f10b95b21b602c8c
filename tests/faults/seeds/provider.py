"""The provider of a seed: keeps what it booked by idempotency key, and makes trouble on demand.

As a provider with idempotency keys does (Stripe's documentation; the IETF's draft): the answer of a
booked key is given again, 409 while its first request is open, 422 for a key with another body.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from rowmill.streams.ports import Note
from tests.faults.seeds.shape import answer_of, spoil_of
from tests.kit.ledger import response
from tests.kit.threaded import ThreadedServer

_Ending = Callable[[asyncio.StreamWriter, bytes], Awaitable[tuple[Any, bool]]]
"""Gives an answer that does not end well."""

BOMB = gzip.compress(b"0" * (64 << 20))
DEEP = b"[" * 200_000
ENDLESS_CHUNK = b" " * (64 << 10)
ABSURD_WAITS = ("soon", "-1", "nan", "1_0", "0", "1", "", "+0.5", "Thu, 01 Jan 1970 00:00:00 GMT")


@dataclass
class Mood:
    """How the provider behaves now. Parts (0 to 1) of requests; `slow`: factor of the latency."""

    slow: float = 1.0
    hang: float = 0.0
    trickle: float = 0.0
    reset_before: float = 0.0
    reset_after: float = 0.0
    refuse: float = 0.0
    storm: float = 0.0


@dataclass
class _Book:
    digests: dict[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[bytes, _Ending | None]] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)


class SeedProvider(ThreadedServer):
    """The provider. Use it as a context manager; `mood` may be changed at any time."""

    def __init__(self, note: Note, chance: random.Random, latency_s: float, canary: str) -> None:
        super().__init__()
        self.mood = Mood()
        self.url = ""
        self.calls = 0
        self._note = note
        self._chance = chance
        self._latency_s = latency_s
        self._canary = canary
        self._book = _Book()
        self._server: asyncio.Server | None = None

    async def _listen(self) -> None:
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
        path = head[0].split(" ")[1]
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:-2])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        key = headers.get("idempotency-key", "")
        digest = blake2b(body, digest_size=8).hexdigest()
        self.calls += 1
        self._note("arrived", key=key, tool=path, digest=digest)
        if path == "/third":
            key = f"{key}/{self.calls}"  # it honours no keys: each request is booked anew
        status: Any = "gone"
        try:
            question = json.loads(body)
            status, goes_on = await self._answer(path, key, digest, question, reader, writer)
        finally:
            self._note("replied", key=headers.get("idempotency-key", ""), status=status)
        return goes_on

    async def _answer(
        self,
        path: str,
        key: str,
        digest: str,
        question: Any,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> tuple[Any, bool]:
        book, mood, chance = self._book, self.mood, self._chance
        if (known := book.digests.setdefault(key, digest)) != digest:
            return await _send(writer, 422, {"error": f"key of another body, {known}"})
        if key in book.answers:
            return await _give(writer, *book.answers[key])
        if key in book.open:
            return await _send(writer, 409, {"error": "the first request is open"})
        if chance.random() < mood.storm:
            wait = chance.choice(ABSURD_WAITS)
            return await _send(writer, 429, {"error": "slow down"}, f"Retry-After: {wait}")
        if chance.random() < mood.reset_before:
            return _reset(writer)
        if chance.random() < mood.refuse:
            return await _send(writer, 503, {"error": "busy"})
        book.open.add(key)
        try:
            latency_s = self._latency_s * mood.slow * (0.5 + chance.random())
            stayed = await _waits(reader, 3_600 if chance.random() < mood.hang else latency_s)
            book.answers[key] = answer = self._answer_of(path, question)
            self._note("booked", key=key)  # also where its client has gone: the work was done
        finally:
            book.open.discard(key)
        if not stayed:
            return "gone", False
        if chance.random() < mood.reset_after:
            return _reset(writer)
        if chance.random() < mood.trickle:
            return await _trickle(writer, answer[0])
        return await _give(writer, *answer)

    def _answer_of(self, path: str, question: Any) -> tuple[bytes, _Ending | None]:
        spoil = spoil_of(question) if path == "/first" else "good"
        if spoil == "refused":
            return response(422, b'{"error": "no such thing"}'), None
        if spoil == "stored_500":
            return response(500, b'{"error": "broken for good"}'), None
        if spoil == "too_large":
            head = (
                f"HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nContent-Length: {len(BOMB)}\r\n\r\n"
            )
            return head.encode() + BOMB, None
        if spoil == "endless":
            return b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n\r\n", _endless
        if spoil == "deep":
            return response(200, DEEP), None
        if spoil == "secret":
            return response(200, json.dumps({"echo": f"Bearer {self._canary}"}).encode()), None
        return response(200, json.dumps(answer_of(path, question)).encode()), None


async def _send(
    writer: asyncio.StreamWriter, status: int, value: Any, *headers: str
) -> tuple[int, bool]:
    content = json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode() + content)
    await writer.drain()
    return status, True


async def _give(
    writer: asyncio.StreamWriter, answer: bytes, ending: _Ending | None
) -> tuple[Any, bool]:
    if ending is not None:
        return await ending(writer, answer)
    writer.write(answer)
    await writer.drain()
    return int(answer[9:12]), True


async def _waits(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Wait, but no longer than the client does. Returns: whether it stayed."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read(1)  # a client that waits for its answer sends nothing else
    except TimeoutError:
        return True
    except ConnectionError:
        return False
    return False


async def _endless(writer: asyncio.StreamWriter, head: bytes) -> tuple[str, bool]:
    writer.write(head)
    while True:
        writer.write(ENDLESS_CHUNK)
        await writer.drain()


async def _trickle(writer: asyncio.StreamWriter, answer: bytes) -> tuple[str, bool]:
    """One byte a second: no socket's timeout meets it, only the whole call's."""
    for place in range(len(answer)):
        writer.write(answer[place : place + 1])
        await writer.drain()
        await asyncio.sleep(1)
    return "hung", False


def _reset(writer: asyncio.StreamWriter) -> tuple[str, bool]:
    transport = writer.transport
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()
    return "reset", False
