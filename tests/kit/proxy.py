"""A TCP proxy that a test closes and opens, and a broker that one worker reaches only through it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

from rowmill.ops.kafka import embedded, layout
from tests.kit.broker import OwnBroker, free_port
from tests.kit.threaded import ThreadedServer

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 s: closing sends a reset."""


class Proxy(ThreadedServer):
    """Passes bytes on between its port and a port of this machine. Use it as a context manager.

    It runs in a thread of the test. `hold`: connections stay, and what is sent waits in buffers on
    the way, as behind a network that lost its route; `hold_answers`: only what comes back does;
    `release`: all of it arrives. `cut`: every
    connection is reset, and new ones are until `mend`.
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self.port = 0
        self._target = target
        self._passing = asyncio.Event()
        self._answering = asyncio.Event()
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def hold(self) -> None:
        """Pass nothing on in either direction from now on."""
        self._run(self._passing.clear)

    def hold_answers(self) -> None:
        """Pass on what clients send, and nothing that comes back."""
        self._run(self._answering.clear)

    def release(self) -> None:
        """Pass everything on again, what was held first."""
        self._run(self._passing.set)
        self._run(self._answering.set)

    def cut(self) -> None:
        """Reset every connection, and new ones as they come. What was held is lost."""
        self._run(self._cut)

    def mend(self) -> None:
        """Take new connections again."""
        self._run(lambda: setattr(self, "_refusing", False))

    def _run(self, step: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            step()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10)

    async def _listen(self) -> None:
        self._passing.set()
        self._answering.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cut(self) -> None:
        self._refusing = True
        for writer in self._writers:
            _reset(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, self._passing))
                group.create_task(self._pump(far_reader, writer, self._passing, self._answering))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers -= both
            for each in both:
                each.close()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *gates: asyncio.Event
    ) -> None:
        while chunk := await source.read(1 << 16):
            for gate in gates:
                await gate.wait()
            sink.write(chunk)
            await sink.drain()
        for gate in gates:
            await gate.wait()
        raise ConnectionResetError  # one side closed: end the other direction too


def _reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport = writer.transport
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()


class TunedBroker(OwnBroker):
    """An embedded broker with a second listener behind a proxy, and whose log cleaner works at once.

    Clients that begin at `behind_proxy` are told the proxy's address for everything; those of
    `bootstrap` never meet it.
    """

    def __init__(self, home: Path, **settings: Any) -> None:
        super().__init__(home, **settings)
        self._inner_port = free_port()
        self.proxy = Proxy(self._inner_port)

    @property
    def behind_proxy(self) -> str:
        """`host:port` through the proxy."""
        return f"127.0.0.1:{self.proxy.port}"

    def start(self) -> embedded.Broker:
        """Start it, or start it again on the same ports and data."""
        plain = layout.properties

        def tuned(data: Path, port: int, controller_port: int) -> str:
            text = plain(data, port, controller_port)
            for name, value in (
                ("listeners", f"PROXIED://127.0.0.1:{self._inner_port}"),
                ("advertised.listeners", f"PROXIED://{self.behind_proxy}"),
                ("listener.security.protocol.map", "PROXIED:PLAINTEXT"),
            ):
                head, tail = text.split(f"\n{name}=", 1)
                line, rest = tail.split("\n", 1)
                text = f"{head}\n{name}={line},{value}\n{rest}"
            return f"{text}log.cleaner.backoff.ms=200\n"

        with patch("rowmill.ops.kafka.embedded.properties", tuned):
            return super().start()

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self.proxy.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.proxy.release()
        super().__exit__(kind, error, trace)
        self.proxy.__exit__(kind, error, trace)
