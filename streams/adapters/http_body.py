"""The bytes of an answer, bounded before they are held: cut off while streaming, inflated bit by bit.

A gzip body of 204 kB can hold 200 MB, and a client that inflates by itself hands out 16 MB and more
at once (F36). So the body is read raw and inflated here, never beyond the bound.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable

ACCEPT_ENCODING = "gzip, deflate"

_GZIP = 16 + zlib.MAX_WBITS
_ZLIB = zlib.MAX_WBITS
_RAW_DEFLATE = -zlib.MAX_WBITS

_PLAIN = ("", "identity")


class BodyUnusable(ValueError):
    """The body can't be read; the message is the reason. `cut`: it ended too early."""

    def __init__(self, reason: str, *, cut: bool) -> None:
        super().__init__(reason)
        self.cut = cut


async def read_body(
    chunks: AsyncIterable[bytes], encoding: str, bytes_max: int
) -> tuple[bytes, bool]:
    """Return the inflated body and whether it is whole: at most `bytes_max` bytes, then it stops.

    `encoding`: the Content-Encoding header. Raises: BodyUnusable for an encoding that was not asked
    for, or one that is broken; what `chunks` raises.
    """
    encoding = encoding.strip().lower()
    if encoding not in _PLAIN:
        return await _inflated(chunks, encoding, bytes_max)
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > bytes_max:
            return b"".join(parts)[:bytes_max], False
    return parts[0] if len(parts) == 1 else b"".join(parts), True


async def _inflated(
    chunks: AsyncIterable[bytes], encoding: str, bytes_max: int
) -> tuple[bytes, bool]:
    stream = _Inflation(encoding, bytes_max)
    async for chunk in chunks:
        stream.feed(chunk)
        if len(stream.body) > bytes_max:
            return bytes(stream.body[:bytes_max]), False
    stream.end()
    return bytes(stream.body), True


class _Inflation:
    """A gzip or deflate stream that grows `body` to one byte above `bytes_max` at most."""

    def __init__(self, encoding: str, bytes_max: int) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise BodyUnusable(f"Content-Encoding {encoding[:40]!r} was not asked for", cut=False)
        self._deflate = encoding == "deflate"
        self._stream = zlib.decompressobj(_ZLIB if self._deflate else _GZIP)
        self._bytes_max = bytes_max
        self._begun = False
        self.body = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Inflate a chunk. Raises: BodyUnusable."""
        try:
            self._inflate(chunk)
        except zlib.error as error:
            raise BodyUnusable(f"broken compression ({error})", cut=False) from error

    def end(self) -> None:
        """The chunks are over. Raises: BodyUnusable where the stream is not."""
        if self._begun and not self._stream.eof:
            raise BodyUnusable("the compressed body is cut off", cut=True)

    def _inflate(self, chunk: bytes) -> None:
        while chunk and len(self.body) <= self._bytes_max:
            if self._stream.eof:
                # RFC 1952, 2.2: a gzip file is a series of members.
                self._stream = zlib.decompressobj(_GZIP)
            elif not self._begun and self._deflate and not _zlib_header(chunk):
                # RFC 9110, 8.4.1.2: some servers send "deflate" without the zlib wrapper.
                self._stream = zlib.decompressobj(_RAW_DEFLATE)
            self._begun = True
            self.body += self._stream.decompress(chunk, self._bytes_max + 1 - len(self.body))
            chunk = self._stream.unconsumed_tail or self._stream.unused_data


def _zlib_header(chunk: bytes) -> bool:
    """Say whether a zlib stream begins here (RFC 1950, 2.2)."""
    return chunk[0] & 0x0F == 8 and (len(chunk) < 2 or int.from_bytes(chunk[:2]) % 31 == 0)
