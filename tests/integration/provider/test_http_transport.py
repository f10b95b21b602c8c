"""The HTTP adapter against servers that behave as providers and networks do."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Literal

import pytest

from rowmill.errors import SecretMissing
from rowmill.plays.specs import Auth, ProviderSpec, ToolSpec
from rowmill.streams.adapters import http
from rowmill.streams.adapters.http import HttpProvider
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.core.outcomes import Answered, FailureKind, Refused
from rowmill.streams.ports import NotSent, Provider, Send
from tests.kit.provider import RunningProvider
from tests.kit.raw_server import RawServer, answer, closing, reset
from tests.kit.until import until

CANARY = "canary-value-1"


@pytest.fixture
async def http_provider() -> AsyncIterator[HttpProvider]:
    provider = HttpProvider(EnvironmentSecrets({"ROWMILL_SECRET_KEY": CANARY}))
    yield provider
    await provider.close()


def send(
    url: str,
    *,
    method: Literal["POST", "GET", "PUT"] = "POST",
    input_: dict[str, Any] | None = None,
    auth: Auth | None = None,
    timeout_s: float = 10,
    bytes_max: int = 10_000,
) -> Send:
    provider = ProviderSpec(id="registry", base_url=url, auth=auth, headers={"X-Org": "acme"})
    tool = ToolSpec(id="registry.profile", provider="registry", method=method, path="/company")
    return Send(provider, tool, input_ or {"symbol": "A"}, "key-1", timeout_s, bytes_max)


async def refused(provider: Provider, wanted: Send) -> Refused:
    found = await provider.call(wanted)
    assert isinstance(found, Refused), found
    return found


async def test_a_call_is_answered_by_the_practice_provider(http_provider: HttpProvider) -> None:
    with RunningProvider.start() as provider:
        found = await http_provider.call(send(provider.url, input_={"symbol": "MMM"}))
        assert isinstance(found, Answered)
        assert found.output["name"] == "MMM Harbor Stone SA"
        assert found.latency_ms > 0
        got = await http_provider.call(send(provider.url, method="GET", input_={"symbol": "MMM"}))
        assert isinstance(got, Answered)
        assert got.output == found.output
        assert provider.stats_of("key-1")["arrived"] == 2


@pytest.mark.behaviour("Q7")
async def test_a_request_carries_key_body_and_names(http_provider: HttpProvider) -> None:
    async with RawServer([answer()]) as server:
        one = send(server.url, input_={"b": 1, "a": "ü"}, auth=Auth(secret="KEY"))
        other = send(server.url, input_={"a": "ü", "b": 1}, auth=Auth(secret="KEY"))
        await http_provider.call(one)
        await http_provider.call(other)
    first, second = server.requests
    assert (first.method, first.target) == ("POST", "/company")
    assert first.body == second.body == '{"a":"ü","b":1}'.encode()
    expected = {
        "host": server.url.removeprefix("http://"),
        "idempotency-key": "key-1",
        "authorization": f"Bearer {CANARY}",
        "content-type": "application/json",
        "accept-encoding": "gzip, deflate",
        "x-org": "acme",
    }
    assert expected.items() <= first.headers.items()
    assert first.headers["user-agent"].startswith("rowmill/")


@pytest.mark.behaviour("R3")
async def test_nothing_leaves_once_the_owner_may_not_send_any_more(
    http_provider: HttpProvider,
) -> None:
    async with RawServer([answer()]) as server:
        wanted = send(server.url)
        with pytest.raises(NotSent):
            await http_provider.call(replace(wanted, may_leave=lambda: False))
        assert isinstance(await http_provider.call(wanted), Answered)
        assert len(server.requests) == 1


async def test_a_get_sends_its_input_as_query(http_provider: HttpProvider) -> None:
    auth = Auth(kind="query", secret="KEY", name="api_key")
    async with RawServer([answer()]) as server:
        wanted = {
            "q": "a&b ü",
            "limit": 5,
            "all": True,
            "none": None,
            "tag": ["x", "y"],
            "o": {"a": 1},
        }
        await http_provider.call(send(server.url, method="GET", input_=wanted, auth=auth))
        header = Auth(kind="header", secret="KEY", name="X-Api-Key")
        await http_provider.call(send(server.url, method="GET", auth=header))
    first, second = server.requests
    path, _, query = first.target.partition("?")
    assert (path, first.body) == ("/company", b"")
    parts = sorted(query.replace("%20", "+").split("&"))
    assert parts == sorted(
        [
            "all=true",
            f"api_key={CANARY}",
            "limit=5",
            "o=%7B%22a%22%3A1%7D" if "%7B%22a%22%3A1%7D" in query else "o=%7B%22a%22:1%7D",
            "q=a%26b+%C3%BC",
            "tag=x",
            "tag=y",
        ]
    )
    assert second.headers["x-api-key"] == CANARY
    assert "content-type" not in second.headers


@pytest.mark.behaviour("Q7")
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_a_kept_connection_that_drops_brings_no_second_send(
    http_provider: HttpProvider, method: Literal["GET", "PUT", "POST"]
) -> None:
    """aiohttp sends a GET or PUT again by itself in that case: the provider would book it twice."""
    async with RawServer([answer(), closing(), answer()]) as server:
        assert isinstance(await http_provider.call(send(server.url, method=method)), Answered)
        found = await refused(http_provider, send(server.url, method=method))
        assert [request.connection for request in server.requests] == [1, 1]
    assert (found.kind, found.retryable) == (FailureKind.TRANSIENT, True)
    assert (found.maybe_booked, found.reached) == (True, True)
    assert "closed before an answer came" in found.message


@pytest.mark.behaviour("Q7")
async def test_one_purchase_keeps_one_key_and_one_body_over_retries(
    http_provider: HttpProvider,
) -> None:
    """Case O19: reset after booking, then a cut body, then an answer."""
    cut = closing(answer(200, b'{"email":"ada@ac', length=64))
    whole = answer(200, b'{"email":"ada@acme.test"}')
    async with RawServer([reset, cut, whole]) as server:
        outcomes = [await http_provider.call(send(server.url)) for _ in range(3)]
        assert len({(r.headers["idempotency-key"], r.body) for r in server.requests}) == 1
    for lost in outcomes[:2]:
        assert isinstance(lost, Refused)
        assert lost.retryable
        assert lost.maybe_booked
    assert isinstance(outcomes[2], Answered)
    assert outcomes[2].output == {"email": "ada@acme.test"}


async def test_nothing_listens_and_nothing_was_sent(http_provider: HttpProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = await refused(http_provider, send(f"http://127.0.0.1:{port}"))
    assert (found.kind, found.retryable) == (FailureKind.UNREACHABLE, True)
    assert (found.maybe_booked, found.reached) == (False, False)
    assert found.message == f"127.0.0.1:{port} is unreachable: Connection refused"


async def test_an_unknown_name_is_unreachable_not_an_answer(http_provider: HttpProvider) -> None:
    found = await refused(http_provider, send("http://no-such-host.invalid"))
    assert found.kind is FailureKind.UNREACHABLE
    assert "no-such-host.invalid is unreachable: its name is not known" in found.message
    assert not found.maybe_booked


async def test_a_connection_that_never_comes_was_no_send(
    http_provider: HttpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener with a full backlog answers no handshake. Both clocks of a call end it: nothing left."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        url = f"http://127.0.0.1:{address[1]}"
        whole_call = await refused(http_provider, send(url, timeout_s=0.3))
        monkeypatch.setattr(http, "CONNECT_S_MAX", 0.3)
        connecting = await refused(http_provider, send(url))
        for filler in fillers:
            filler.close()
    for found in (whole_call, connecting):
        assert (found.kind, found.maybe_booked) == (FailureKind.UNREACHABLE, False)
        assert not found.reached
    assert "no connection within 0.3 s" in connecting.message


async def test_one_byte_a_second_meets_the_whole_calls_timeout(http_provider: HttpProvider) -> None:
    """Case F32: every single read succeeds in time, the call does not."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with RawServer([drip]) as server:
        started_s = time.monotonic()
        found = await refused(http_provider, send(server.url, timeout_s=0.5))
        assert time.monotonic() - started_s < 5  # 100,000 bytes would take 2,000 s
    assert (found.kind, found.maybe_booked) == (FailureKind.TRANSIENT, True)
    assert "no whole answer within 0.5 s" in found.message


async def test_a_provider_that_hangs_meets_the_timeout(http_provider: HttpProvider) -> None:
    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with RawServer([hang]) as server:
        found = await refused(http_provider, send(server.url, timeout_s=0.2))
    assert (found.kind, found.retryable) == (FailureKind.TRANSIENT, True)
    assert (found.maybe_booked, found.reached) == (True, True)


@pytest.mark.behaviour("R9")
async def test_an_endless_answer_is_cut_off_while_it_streams(http_provider: HttpProvider) -> None:
    """Case F36. The connection is closed, so the server notices too."""
    stopped = asyncio.Event()

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                await writer.drain()
        finally:
            stopped.set()

    async with RawServer([endless]) as server:
        found = await refused(http_provider, send(server.url))
        await until(stopped.is_set, within_s=10)
    assert (found.kind, found.retryable) == (FailureKind.TOO_LARGE, False)
    assert "more than 10,000 bytes" in found.message


@pytest.mark.behaviour("R9")
async def test_a_gzip_bomb_is_too_large_and_honest_gzip_is_read(
    http_provider: HttpProvider,
) -> None:
    honest = answer(200, gzip.compress(b'{"name": "3M"}'), "Content-Encoding: gzip")
    bomb = answer(200, gzip.compress(bytes(50 << 20)), "Content-Encoding: gzip")
    brotli = answer(200, b"\x0b\x02\x80", "Content-Encoding: br")
    async with RawServer([honest, bomb, brotli]) as server:
        found = await http_provider.call(send(server.url))
        assert isinstance(found, Answered)
        assert found.output == {"name": "3M"}
        assert (await refused(http_provider, send(server.url))).kind is FailureKind.TOO_LARGE
        unasked = await refused(http_provider, send(server.url))
        assert (unasked.retryable, unasked.maybe_booked) == (False, True)
        assert "Content-Encoding 'br' was not asked for" in unasked.message


async def test_redirects_are_not_followed_and_cookies_not_kept(http_provider: HttpProvider) -> None:
    moved = answer(302, b"", "Location: /elsewhere", "Set-Cookie: a=b")
    async with RawServer([moved, answer(200, b"{}", "Set-Cookie: a=b"), answer()]) as server:
        found = await refused(http_provider, send(server.url))
        assert (found.kind, found.status_code) == (FailureKind.PERMANENT, 302)
        for _ in range(2):
            await http_provider.call(send(server.url))
        assert len(server.requests) == 3
        assert all("cookie" not in request.headers for request in server.requests)


async def test_the_environments_proxy_is_not_used(
    http_provider: HttpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would see every secret; one is named in the provider's address or not at all."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with RawServer([answer()]) as server:
        assert isinstance(await http_provider.call(send(server.url)), Answered)


async def test_an_answer_that_is_no_http_may_be_booked(http_provider: HttpProvider) -> None:
    async def rubbish(writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01 rubbish\r\n\r\n")
        await writer.drain()

    async def large_header(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n")
        await writer.drain()

    for reaction in (rubbish, large_header):
        async with RawServer([reaction]) as server:
            found = await refused(http_provider, send(server.url))
        assert (found.kind, found.maybe_booked) == (FailureKind.TRANSIENT, True)
        assert found.message.isprintable()
        assert len(found.message) < 500


async def test_a_refusal_with_a_cut_body_keeps_its_status(http_provider: HttpProvider) -> None:
    async with RawServer([closing(answer(429, b"{", "Retry-After: 7", length=100))]) as server:
        found = await refused(http_provider, send(server.url))
    assert (found.status_code, found.retry_after_ms, found.waits) == (429, 7_000, True)


async def test_a_missing_secret_is_told_before_anything_is_sent(
    http_provider: HttpProvider,
) -> None:
    async with RawServer([answer()]) as server:
        with pytest.raises(SecretMissing, match="ROWMILL_SECRET_OTHER"):
            await http_provider.call(send(server.url, auth=Auth(secret="OTHER")))
        assert server.requests == []


async def test_an_input_that_is_no_json_is_refused_unsent(http_provider: HttpProvider) -> None:
    async with RawServer([answer()]) as server:
        for bad in (float("nan"), object()):
            found = await refused(http_provider, send(server.url, input_={"a": bad}))
            assert (found.kind, found.reached) == (FailureKind.PERMANENT, False)
            assert "the request can't be built" in found.message
        assert server.requests == []


@pytest.mark.behaviour("R10")
async def test_a_secret_that_comes_back_is_not_kept(http_provider: HttpProvider) -> None:
    echo = answer(200, json.dumps({"authorization": f"Bearer {CANARY}"}).encode())
    async with RawServer([echo]) as server:
        found = await refused(http_provider, send(server.url, auth=Auth(secret="KEY")))
    assert found.kind is FailureKind.SECRET
    assert CANARY not in repr(found)


async def test_giving_up_closes_the_connection_and_raises(http_provider: HttpProvider) -> None:
    gone = asyncio.Event()

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    async with RawServer([drip]) as server:
        call = asyncio.create_task(http_provider.call(send(server.url)))
        await until(lambda: server.requests, within_s=10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(gone.is_set, within_s=10)


async def test_connections_are_kept_and_bounded_by_the_calls_in_flight(
    http_provider: HttpProvider,
) -> None:
    with RunningProvider.start(latency_ms=20) as provider:
        wanted = send(provider.url)
        for _ in range(3):
            found = await asyncio.gather(*(http_provider.call(wanted) for _ in range(40)))
            assert all(isinstance(outcome, Answered) for outcome in found)
        assert provider.stats()["in_flight_max"] <= 40
