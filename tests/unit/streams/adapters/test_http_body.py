"""The bytes of an answer, bounded before they are held."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.streams.adapters.http_body import BodyUnusable, read_body

TEXT = b'{"name": "' + b"3M Company " * 500 + b'"}'


async def pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize("size", [1, 7, 16_384])
@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (TEXT, ""),
        (TEXT, "identity"),
        (gzip.compress(TEXT, mtime=0), "gzip"),
        (gzip.compress(TEXT, mtime=0), " X-GZip "),
        (gzip.compress(TEXT[:99], mtime=0) + gzip.compress(TEXT[99:], mtime=0), "gzip"),
        (zlib.compress(TEXT), "deflate"),
        (raw_deflate(TEXT), "deflate"),
    ],
)
async def test_a_body_comes_whole_in_whatever_pieces(body: bytes, encoding: str, size: int) -> None:
    assert await read_body(pieces(body, size), encoding, len(TEXT)) == (TEXT, True)


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
async def test_a_body_above_the_bound_is_cut_at_it(encoding: str) -> None:
    packed = {"": TEXT, "gzip": gzip.compress(TEXT, mtime=0), "deflate": zlib.compress(TEXT)}[
        encoding
    ]
    body, whole = await read_body(pieces(packed, 64), encoding, len(TEXT) - 1)
    assert (body, whole) == (TEXT[:-1], False)


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 1_000

    assert await read_body(endless(), "", 10_000) == (b"x" * 10_000, False)
    assert read <= 12


async def test_a_gzip_bomb_is_never_inflated() -> None:
    """Case F36: 200 MB in 200 kB. What is held stays near the bound."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    tracemalloc.start()
    body, whole = await read_body(pieces(bomb, 16_384), "gzip", 256 << 10)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(body), whole) == (256 << 10, False)
    assert peak_bytes < 2 << 20


@pytest.mark.parametrize(
    ("body", "encoding", "cut", "reason"),
    [
        (TEXT, "br", False, "'br' was not asked for"),
        (TEXT, "gzip, gzip", False, "was not asked for"),
        (TEXT, "gzip", False, "broken compression"),
        (TEXT, "deflate", False, "broken compression"),
        (gzip.compress(TEXT, mtime=0)[:-20], "gzip", True, "cut off"),
        (gzip.compress(TEXT, mtime=0) + b"rubbish", "gzip", False, "broken compression"),
    ],
)
async def test_a_body_that_cannot_be_read_says_why(
    body: bytes, encoding: str, cut: bool, reason: str
) -> None:
    with pytest.raises(BodyUnusable, match=reason) as caught:
        await read_body(pieces(body, 100), encoding, 1 << 20)
    assert caught.value.cut is cut


@given(
    st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "", "zstd"]), st.integers(1, 50)
)
async def test_no_bytes_break_the_reader(body: bytes, encoding: str, bytes_max: int) -> None:
    try:
        found, _ = await read_body(pieces(body, 13), encoding, bytes_max)
    except BodyUnusable:
        return
    assert len(found) <= bytes_max
