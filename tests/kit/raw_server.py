"""A server that says exactly the bytes a test wants, and counts what arrives."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Request:
    """A request as it arrived. Header names in lower case; `connection` counts from 1."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


Reaction = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(
    status: int = 200, body: bytes = b"{}", *headers: str, length: int | None = None
) -> Reaction:
    """Answer in one piece. `length`: what Content-Length claims, the truth unless given."""

    async def react(writer: asyncio.StreamWriter) -> None:
        lines = [
            f"HTTP/1.1 {status} X",
            f"Content-Length: {len(body) if length is None else length}",
        ]
        writer.write("\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body)
        await writer.drain()

    return react


def closing(reaction: Reaction | None = None) -> Reaction:
    """React, then close the connection; without a reaction before any byte."""

    async def react(writer: asyncio.StreamWriter) -> None:
        if reaction is not None:
            await reaction(writer)
        writer.close()

    return react


async def reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection before any byte."""
    transport = writer.transport
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()


@dataclass
class RawServer:
    """Reacts to the n-th request with the n-th reaction, to later ones with the last."""

    reactions: Sequence[Reaction]
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    _connections: int = 0
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self._connections += 1
        number = self._connections
        try:
            while not writer.is_closing():
                request = await _read(reader, number)
                self.requests.append(request)
                reaction = self.reactions[min(len(self.requests), len(self.reactions)) - 1]
                await reaction(writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader, connection: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:-2])
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body, connection)
