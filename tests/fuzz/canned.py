"""An HTTP connection without a network: aiohttp writes into it, and reads what the test says."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
from httpx_aiohttp import AiohttpTransport

from rowmill.streams.adapters import http
from rowmill.streams.adapters.http import HttpProvider
from rowmill.streams.ports import Secrets

_TLS = ssl.create_default_context()


class _Wire(asyncio.Transport):
    """Answers the first bytes that are written, then ends the connection."""

    def __init__(self, protocol: Any, answer: bytes) -> None:
        super().__init__({"peername": ("127.0.0.1", 80)})
        self._protocol = protocol
        self._answer: bytes | None = answer
        self._open = True
        self.written = bytearray()

    def write(self, data: Any) -> None:
        """As a socket's."""
        self.written += data
        if self._answer is not None:
            answer, self._answer = self._answer, None
            asyncio.get_running_loop().call_soon(self._reply, answer)

    def writelines(self, lines: Any) -> None:
        """As a socket's."""
        self.write(b"".join(lines))

    def _reply(self, answer: bytes) -> None:
        for start in range(0, len(answer), 16_384):
            if self._open:
                self._protocol.data_received(answer[start : start + 16_384])
        if self._open:
            self._protocol.eof_received()
        self.close()

    def close(self) -> None:
        """As a socket's."""
        if self._open:
            self._open = False
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        """As a socket's."""
        return not self._open

    def pause_reading(self) -> None:
        """Nothing: the whole answer is there."""

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        """As a socket's."""
        return 0


class _Connector(http._Connector):
    """Hands out wires."""

    answer = b""
    wire: _Wire | None = None

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:
        protocol = self._factory()
        self.wire = _Wire(protocol, self.answer)
        protocol.connection_made(self.wire)
        return protocol


class CannedProvider:
    """`HttpProvider` as it is, but for its connections. Made within a running loop."""

    def __init__(self, secrets: Secrets) -> None:
        self._connector = _Connector(limit=0, force_close=True)
        self.http = HttpProvider(secrets, tls=_TLS)
        session = aiohttp.ClientSession(
            connector=self._connector,
            response_class=http._Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        )
        session._retry_connection = False
        self.http._transport = AiohttpTransport(verify=_TLS, client=session)

    def answers(self, answer: bytes) -> None:
        """Say what the next connection answers."""
        self._connector.answer = answer
        self._connector.wire = None

    @property
    def written(self) -> bytes:
        """What was sent on the last connection."""
        return bytes(self._connector.wire.written) if self._connector.wire is not None else b""
