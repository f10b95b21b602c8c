"""Whatever a provider's server writes, and whatever a play declares, a send ends in an Outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from rowmill.errors import SecretMissing
from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.adapters.http_answers import without_secrets
from rowmill.streams.core.outcomes import Answered, Refused
from rowmill.streams.ports import Send
from tests.fuzz.bounds import bounded
from tests.fuzz.canned import CannedProvider
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import ODD_TEXTS, changed_bytes, changed_records
from tests.fuzz.records import PROVIDER, TOOL
from tests.fuzz.strict_engine import Loop
from tests.fuzz.test_answers import check
from tests.kit.fake_engine import CANARY, FakeApp

SECRETS = FakeApp().secrets
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n" + b'{"a":1}'
ANSWERS = [
    OK,
    b"HTTP/1.1 429 Slow down\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n",
    b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere.test/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    b"HTTP/1.0 200 OK\r\nX: \xc3\xa9\r\nSet-Cookie: a=b\r\n\r\n[]",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 500 " + b"x" * 9_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X-%d: y\r\n" * 1 % 7 + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n{}",
]
URLS = [
    text.encode()
    for text in (
        "http://provider.test/v1", "https://provider.test:8443/a/b?c=d", "http://127.0.0.1:1/",
        "http://[::1]:80/x", "http://user:pass@h/", "http://xn--bcher-kva.test/", "http://é.test/",
        "HTTP://H", "http://h/%7e/a b", "ftp://h/", "http://h#frag", "http://h?q=1", "http://h:99999",
        "http://h:-1", "http://h:0", "http://" + "a" * 300, "http://a..b/", "http://1e999/",
    )
]  # fmt: skip


PATHS = ("/t", "/", "/a b", "//x", "/é?q=%zz", "/#f", "/\0", "/:80", "x")


def send_of(provider: ProviderSpec, tool: ToolSpec, question: Any) -> Send:
    """Return a send as the caller makes it."""
    return Send(provider, tool, question, "key", 5, 262_144, lambda: True)


@fuzzed
@given(several(changed_bytes(ANSWERS)))
@example([OK.replace(b"200 OK", b"200 \xff")])  # UnicodeEncodeError: dispatch ended, call was paid
def test_whatever_a_server_writes_is_an_outcome(loop: Loop, answers: Sequence[bytes]) -> None:
    async def hear() -> None:
        provider = CannedProvider(SECRETS)
        for answer in answers:
            provider.answers(answer)
            check(await provider.http.call(send_of(PROVIDER, TOOL, {"q": 1})))
        await provider.http.close()

    bounded(lambda: loop.run(hear))


SPECS = [
    {
        "provider": PROVIDER.model_dump(mode="json") | {"auth": {"kind": kind, "secret": "canary"}},
        "tool": TOOL.model_dump(mode="json") | {"method": method},
        "input": {"q": "x", "list": [1, "a", None], "nested": {"a": 1.5}},
    }
    for kind, method in (("bearer", "POST"), ("query", "GET"), ("header", "PUT"))
]


def declare(plain: Any) -> Send | None:
    """Return what a play declares, None where it is refused at its declaration."""
    try:
        provider = ProviderSpec.model_validate(plain["provider"])
        tool = ToolSpec.model_validate(plain["tool"])
        question = plain["input"]
    except (ValidationError, KeyError, TypeError):
        return None
    return send_of(provider, tool, question if isinstance(question, dict) else {"q": question})


async def send_all(sends: Sequence[Send | None]) -> None:
    """Send what was not refused where it was declared."""
    provider = CannedProvider(SECRETS)
    for sent in sends:
        if sent is not None:
            await send(provider, sent)
    await provider.http.close()


async def send(provider: CannedProvider, sent: Send) -> None:
    """The request leaves as one request, or is refused before."""
    provider.answers(OK)
    try:
        outcome, written = await provider.http.call(sent), provider.written
    except SecretMissing:
        return  # its name is not one of the environment: said, and nothing was called
    check(outcome)
    if isinstance(outcome, Refused):
        assert without_secrets(outcome, SECRETS) == outcome
        assert CANARY not in outcome.message
    if isinstance(outcome, Answered):
        head, _, _ = written.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0].endswith(b" HTTP/1.1")
        assert lines[0].startswith((b"GET /", b"POST /", b"PUT /"))
        assert sum(line.lower().startswith(b"host:") for line in lines) == 1
        assert b"\n" not in head.replace(b"\r\n", b"")


@fuzzed
@given(several(changed_records(SPECS)))
@example([{**SPECS[0], "provider": {**SPECS[0]["provider"], "headers": {"X": "a\r\nEvil: b"}}}])
def test_whatever_a_play_declares_is_sent_or_refused(loop: Loop, drawn: Sequence[Any]) -> None:
    bounded(lambda: loop.run(lambda: send_all([declare(plain) for plain in drawn])))


@fuzzed
@given(several(changed_bytes(URLS)), st.sampled_from(PATHS))
@example([b"http://a%Zone/"], "/t")  # its receipts were not those of a%zone
def test_any_base_url_is_refused_where_it_stands_or_can_be_sent_to(
    loop: Loop, urls: Sequence[bytes], path: str
) -> None:
    sends = [declare(at(url.decode("latin-1"), path)) for url in urls]
    bounded(lambda: loop.run(lambda: send_all(sends)))
    hosts = [sent.provider.host for sent in sends if sent is not None]
    assert all(host and host == host.lower() for host in hosts)


def at(url: str, path: str) -> dict[str, Any]:
    """Return what declares a tool at a URL and a path."""
    provider = {**SPECS[0]["provider"], "base_url": url}
    return {**SPECS[0], "provider": provider, "tool": {**SPECS[0]["tool"], "path": path}}


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_any_header_is_sent_as_one_or_refused(loop: Loop, text: str) -> None:
    plain: Any = {
        **SPECS[0],
        "provider": {**SPECS[0]["provider"], "headers": {"X": text, text: "y"}},
    }
    sent = declare(plain)
    bounded(lambda: loop.run(lambda: send_all([sent])))
