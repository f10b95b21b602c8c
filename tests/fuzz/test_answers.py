"""Whatever a provider answers is an Outcome: bounded, printable, and fit for a receipt."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowmill.streams.adapters.http_answers import Reply, judge
from rowmill.streams.adapters.http_body import BodyUnusable, read_body
from rowmill.streams.core.outcomes import Answered, Outcome
from rowmill.streams.core.receipts import Receipt
from rowmill.streams.core.retry_after import asked_wait_ms
from rowmill.streams.ports import Send
from rowmill.topics import codec
from rowmill.topics.contracts import ReceiptEntry
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import ODD_TEXTS, ODD_VALUES, changed_bytes
from tests.fuzz.records import PROVIDER, TOOL
from tests.fuzz.strict_engine import Loop
from tests.kit.fake_engine import FakeApp

SECRETS = FakeApp().secrets
SEND = Send(PROVIDER, TOOL, {}, "key", 60, 262_144, lambda: True)
STATUSES = (
    200, 200, 200, 201, 204, 205, 206, 299, 300, 301, 304, 400, 401, 402, 403, 404, 408, 409, 422,
    425, 429, 500, 502, 503, 504, 599, 600, 999, 0, 100, -1,
)  # fmt: skip
BODIES = [
    b'{"company":"x","size":7,"at":null,"list":[1,2.5,"a"]}',
    b'{"error":{"message":"no credits left","code":402},"data":null}',
    b'{"success":false,"errors":["quota is exhausted"]}',
    b"[]", b"null", b"7", b'"text"', b"<html><title>Bad gateway</title></html>", b"",
    b'\xef\xbb\xbf{"a":1}', b'{"n":12345678901234567890,"d":0.12345678901234567890}',
    *(msgspec.json.encode({"v": value}) for value in ODD_VALUES),
]  # fmt: skip
PACKED = [gzip.compress(body) for body in BODIES[:6]] + [zlib.compress(body) for body in BODIES[:6]]
ENCODINGS = ("", "", "gzip", "gzip", "deflate", "deflate", "identity", "br", "gzip, gzip", "x" * 99)
TYPES = ("application/json", "", "text/html; charset=latin1", "a; charset=\0", "charset=utf-16")
WAITS = (
    "1", "0", "120", "1.5", "Wed, 02 Dec 2026 10:00:00 GMT", "Wednesday, 02-Dec-26 10:00:00 GMT",
    "9" * 400, "1e999", "-1", "nan", "٣", "Mon, 32 Foo 99999 25:61:61 +9999", "t=5", "1" * 5_000,
    *ODD_TEXTS,
)  # fmt: skip
HEADERS = (
    "retry-after", "ratelimit", "ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset",
    "location",
)  # fmt: skip


async def chunked(body: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield a body as a connection does."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def read(body: bytes, encoding: str, size: int, bytes_max: int) -> Reply:
    """Read a body as `HttpProvider` does."""
    content, whole, unreadable = b"", True, None
    try:
        content, whole = await read_body(chunked(body, size), encoding, bytes_max)
    except BodyUnusable as error:
        unreadable = error
    assert len(content) <= bytes_max
    return Reply(200, {}, content, whole, 1.0, unreadable)


def check(outcome: Outcome) -> None:
    """It can be kept: a receipt with it is written, and reads the same."""
    if isinstance(outcome, Answered):
        receipt = Receipt("k", "t", "p", state="completed", output=outcome.output)
        entry = ReceiptEntry(epoch=1, receipt=receipt)
        again = codec.decode(ReceiptEntry, codec.encode(entry)).receipt.output
        assert again == outcome.output
    else:
        assert outcome.message.isprintable()
        assert 0 < len(outcome.message) < 1_000
        assert outcome.message.encode()
        waits_ms = outcome.retry_after_ms
        assert waits_ms is None or 0 <= waits_ms <= 900_000


def headers_of(drawn: bytes) -> dict[str, str]:
    """Return headers that follow from drawn bytes."""
    pairs = zip(drawn[::2], drawn[1::2], strict=False)
    found = {HEADERS[name % len(HEADERS)]: WAITS[value % len(WAITS)] for name, value in pairs}
    return found | {"content-type": TYPES[len(drawn) % len(TYPES)]}


@fuzzed
@given(several(changed_bytes([*BODIES, *PACKED])), st.binary(min_size=4, max_size=10))
@example([b'"\\ud800"', b"9" * 5_000, b"-" + b"9" * 4_200, b"[" * 60_000], b"\0\0\0\0")
def test_any_answer_is_an_outcome(loop: Loop, bodies: Sequence[bytes], drawn: bytes) -> None:
    async def answer(body: bytes) -> None:
        encoding = ENCODINGS[drawn[0] % len(ENCODINGS)]
        reply = await read(body, encoding, 1 + drawn[1] * 7, 262_144)
        reply = Reply(
            STATUSES[drawn[2] % len(STATUSES)], headers_of(drawn[3:]), reply.body, reply.whole, 1.0,
            reply.unreadable,
        )  # fmt: skip
        check(judge(reply, SEND, SECRETS, 1_790_000_000_000))

    async def answers() -> None:
        for body in bodies:
            await answer(body)

    bounded(lambda: loop.run(answers))


@fuzzed
@given(several(changed_bytes([text.encode() for text in WAITS])), st.sampled_from(HEADERS))
def test_any_wait_is_a_bounded_number_or_none(texts: Sequence[bytes], name: str) -> None:
    def ask() -> None:
        for text in texts:
            found = asked_wait_ms({name: text.decode("latin-1")}, 1_790_000_000_000, 900_000)
            assert found is None or 0 <= found <= 900_000

    bounded(ask)


BOMBS: Sequence[tuple[str, bytes, str]] = (
    ("gzip of a gigabyte", gzip.compress(b"\0" * (200 << 20)), "gzip"),
    ("gzip of gzip", gzip.compress(gzip.compress(b"\0" * (50 << 20))), "gzip"),
    ("members without end", gzip.compress(b"") * 10_000, "gzip"),
    ("deep lists", b"[" * 262_000, ""),
    ("deep objects", b'{"a":' * 50_000, ""),
    ("closed lists", b"[" * 130_000 + b"]" * 130_000, ""),
    ("a long number", b"9" * 262_000, ""),
    ("long decimals", b"[" + b"0." + b"1" * 250_000 + b"]", ""),
    ("many numbers", b"[" + b"1," * 130_000 + b"1]", ""),
    ("many decimals", b"[" + b"0.123456789012345678," * 12_000 + b"1]", ""),
    ("many lists", b"[" + b"[]," * 80_000 + b"1]", ""),
    ("many names", b"{" + b",".join(b'"%d":1' % n for n in range(25_000)) + b"}", ""),
    ("one name", b"{" + b'"a":1,' * 40_000 + b'"a":1}', ""),
    ("escapes", b'"' + b"\\u0041" * 43_000 + b'"', ""),
    ("titles without end", b"<title" * 40_000, ""),
)


@pytest.mark.parametrize(
    ("body", "encoding"), [bomb[1:] for bomb in BOMBS], ids=[b[0] for b in BOMBS]
)
@pytest.mark.parametrize("status", [200, 500])
def test_a_bomb_is_an_outcome_in_bounds(body: bytes, encoding: str, status: int) -> None:
    async def answer() -> None:
        reply = await read(body, encoding, 65_536, 262_144 if status == 200 else 65_536)
        reply = Reply(status, {}, reply.body, reply.whole, 1.0, reply.unreadable)
        check(judge(reply, SEND, SECRETS, 1_790_000_000_000))

    bounded(lambda: asyncio.run(answer()))
