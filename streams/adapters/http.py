"""The one road to a provider: `httpx.Request` straight to the httpx-aiohttp transport.

No `httpx.AsyncClient`: provider calls need no cookies, redirects, auth flows or event hooks, and those
cost as much CPU as the rest of the call. The transport is given a session of our own, since aiohttp's
defaults would send some requests twice (see `_session`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.adapters.clock import SystemClock
from rowmill.streams.adapters.http_answers import Reply, judge, without_secrets
from rowmill.streams.adapters.http_body import BodyUnusable, read_body
from rowmill.streams.adapters.http_request import Route
from rowmill.streams.adapters.http_words import printable
from rowmill.streams.core.outcomes import FailureKind, Outcome, Refused
from rowmill.streams.ports import Clock, NotSent, Secrets, Send

CONNECT_S_MAX = 10.0
"""Longest wait for a connection: two lost packets of a TCP handshake (RFC 6298: 1 s, doubling) and a
slow TLS one. The whole call's time-out holds besides."""

KEEPALIVE_S = 4.0
"""Idle connections are closed before common servers do it (Node.js and uvicorn: 5 s): a request that
crosses a server's close has an unknown outcome."""

REFUSAL_BYTES_MAX = 64 << 10
"""Bytes read of a refusal's body, for its words."""

_TEMPLATES_MAX = 1_000
"""Templates kept; there is one for each tool of each open run."""


class _Progress:
    """How far one send came. `connected`: a connection was handed to it, bytes may have left."""

    __slots__ = ("connected", "may_leave")

    def __init__(self, may_leave: Callable[[], bool]) -> None:
        self.connected = False
        self.may_leave = may_leave


_progress: ContextVar[_Progress] = ContextVar("_progress")


class _Connector(aiohttp.TCPConnector):
    """Notes when a send gets its connection: before that nothing has left, after it anything may.

    Exceptions can't tell: refused and closed-after-sending both come as `ConnectTimeout` from the
    transport, and a cancelled send brings none at all.
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Any:
        connection = await super().connect(req, traces, timeout)
        progress = _progress.get()
        if not progress.may_leave():
            connection.release()
            raise NotSent
        progress.connected = True
        return connection


class _Response(aiohttp.ClientResponse):
    """Has no reason phrase: the transport ends with one that is not UTF-8, after the answer was paid
    for, and nobody reads it."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.reason = ""
        return self


class _Template:
    """A tool's request without what differs from call to call: parsing a URL and checking headers
    anew for each call was a fifth of its CPU."""

    def __init__(self, provider: ProviderSpec, tool: ToolSpec, secrets: Secrets) -> None:
        """Raises: SecretMissing."""
        self.specs = (provider, tool)
        self._route = Route(provider, tool, secrets)
        self._url: httpx.URL | None = None
        self._headers: httpx.Headers | None = None

    def request(self, send: Send) -> httpx.Request:
        """Return the request. Raises: ValueError, TypeError, httpx.InvalidURL as the call's input or
        the provider's definition can't be sent."""
        route = self._route
        if self._url is None:
            self._url = httpx.URL(route.url)
            self._headers = httpx.Headers(route.headers, encoding="ascii")
        get = route.method == "GET"
        # A stream that is read at once, instead of content=: that would work out headers which aiohttp
        # works out again.
        request = httpx.Request(
            route.method,
            route.url_of(send.input) if get else self._url,
            headers=self._headers,
            stream=httpx.ByteStream(b"" if get else route.body(send.input)),
            extensions={"timeout": {"connect": CONNECT_S_MAX}},
        )
        request.read()
        request.headers.encoding = "ascii"
        request.headers["Idempotency-Key"] = send.idempotency_key
        return request


class HttpProvider:
    """Fulfils `ports.Provider`. One for a process; it is bound to the loop of its first call."""

    def __init__(
        self,
        secrets: Secrets,
        clock: Clock | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: whom to trust; unless given, certifi's authorities, or those of SSL_CERT_FILE."""
        self._secrets = secrets
        self._clock = clock or SystemClock()
        self._tls = tls
        self._transport: AiohttpTransport | None = None
        self._templates: dict[tuple[int, int], _Template] = {}

    async def call(self, send: Send) -> Outcome:
        """Send once, and say what came of it (see `ports.Provider`)."""
        template = self._template(send.provider, send.tool)
        try:
            request = template.request(send)
        except (ValueError, TypeError, httpx.InvalidURL) as error:
            return without_secrets(_not_sendable(send, error), self._secrets)
        progress = _Progress(send.may_leave)
        _progress.set(progress)
        started_s = time.perf_counter()
        try:
            async with asyncio.timeout(send.timeout_s):
                reply = await self._exchange(request, send.bytes_max, started_s)
        except (TimeoutError, httpx.TransportError, aiohttp.ClientError, ValueError) as error:
            # ValueError: what the layers below make of an answer, or of a URL, that they can't read.
            latency_ms = (time.perf_counter() - started_s) * 1000
            refused = _broken(send, error, progress.connected, latency_ms)
            return without_secrets(refused, self._secrets)
        return judge(reply, send, self._secrets, self._clock.wall_ms())

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _exchange(self, request: httpx.Request, bytes_max: int, started_s: float) -> Reply:
        if self._transport is None:
            tls = self._tls or httpx.create_ssl_context()
            self._transport = AiohttpTransport(verify=tls, client=_session(tls))
        response = await self._transport.handle_async_request(request)
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        status = response.status_code
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers.raw
        }
        refusal = not 200 <= status < 300
        body, whole, unreadable = b"", True, None
        try:
            body, whole = await read_body(
                stream,
                headers.get("content-encoding", ""),
                REFUSAL_BYTES_MAX if refusal else bytes_max,
            )
        except BodyUnusable as error:
            unreadable = error
        except (httpx.TransportError, aiohttp.ClientError):
            if not refusal:  # there the status says what matters, only its words are lost
                raise
        finally:
            # An unread rest closes the connection; a body read to its end gives it back.
            await stream.aclose()
        latency_ms = (time.perf_counter() - started_s) * 1000
        return Reply(status, headers, body, whole, latency_ms, unreadable)

    def _template(self, provider: ProviderSpec, tool: ToolSpec) -> _Template:
        # By identity: hashing or comparing specs would cost more than the rest of the request. The
        # template holds both, so an id can't come to mean another spec while it is a key.
        key = (id(provider), id(tool))
        template = self._templates.get(key)
        if template is None:
            template = _Template(provider, tool, self._secrets)
            while len(self._templates) >= _TEMPLATES_MAX:
                del self._templates[next(iter(self._templates))]
            self._templates[key] = template
        return template


def _session(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    connector = _Connector(
        limit=0,  # lanes bound the calls in flight; a second bound would only hide waiting
        keepalive_timeout=KEEPALIVE_S,
        ssl=tls,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        response_class=_Response,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,  # no proxy and no .netrc password from the environment
        auto_decompress=False,
    )
    # aiohttp sends a GET or PUT again by itself when a kept connection drops, which may buy
    # twice, unseen. There is no public switch; test_http_transport.py counts what arrives.
    session._retry_connection = False
    return session


def _not_sendable(send: Send, error: Exception) -> Refused:
    # An invalid URL's message quotes the URL, and that may hold a secret.
    invalid_url = isinstance(error, httpx.InvalidURL)
    reason = "its URL is not valid" if invalid_url else printable(str(error))
    return Refused(
        kind=FailureKind.PERMANENT,
        message=f"{send.tool.id}: the request can't be built: {reason}",
        retryable=False,
        maybe_booked=False,
        reached=False,
    )


def _broken(send: Send, error: Exception, connected: bool, latency_ms: float) -> Refused:
    """Return the outcome of a send that got no whole answer."""
    if isinstance(error, TimeoutError):
        reason = f"no whole answer within {send.timeout_s:g} s"
    else:
        reason = printable(_reason(error))
    host = printable(urlsplit(send.provider.base_url).netloc)
    if connected:
        kind, message = FailureKind.TRANSIENT, f"{host}: {reason}"
    else:
        kind, message = FailureKind.UNREACHABLE, f"{host} is unreachable: {reason}"
    return Refused(
        kind=kind,
        message=message,
        retryable=True,
        maybe_booked=connected,
        reached=connected,
        latency_ms=latency_ms,
    )


def _reason(error: BaseException) -> str:
    """Return what broke, in the words of the layer that saw it."""
    cause = error.__cause__ or error
    if isinstance(cause, aiohttp.ClientConnectorCertificateError):
        return f"TLS: {cause.certificate_error}"
    if isinstance(cause, aiohttp.ClientConnectorSSLError):
        return f"TLS: {cause.os_error}"
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return f"its name is not known ({cause.os_error.strerror or cause.os_error})"
    if isinstance(cause, aiohttp.ClientConnectorError):
        # By number: loops put words of their own into the text.
        number = cause.os_error.errno
        return os.strerror(number) if number else str(cause.os_error)
    if isinstance(cause, aiohttp.ServerTimeoutError):
        return f"no connection within {CONNECT_S_MAX:g} s"
    if isinstance(cause, aiohttp.ClientPayloadError):
        return "the answer was cut off"
    if isinstance(cause, aiohttp.ServerDisconnectedError):
        return "the connection was closed before an answer came"
    return str(cause) or type(cause).__name__
