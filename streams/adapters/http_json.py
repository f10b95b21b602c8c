"""An answer's JSON, strictly, with every digit that a provider wrote (O20, O21).

Numbers. Whole numbers stay whole, however long: ids with 19 and more digits are ordinary. A decimal is
a float where a float can carry it; one with more than 17 significant digits, or too small for one,
comes as text with the digits as written: a typed output (Decimal, float) reads both, and the sheet
shows what the provider said. NaN, Infinity and numbers beyond a float are no JSON and are refused.

Text is UTF-8 (RFC 8259, 8.1). A byte order mark in front is ignored, as that section allows. Where the
bytes are no UTF-8 and the header names one of a few older charsets, they are read as that.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from rowmill.streams.adapters.http_body import BodyUnusable
from rowmill.streams.adapters.http_words import printable
from rowmill.streams.core.nesting import is_deeper, may_be_deeper

DEPTH_MAX = 100
"""Levels of nesting. Python walks some 900 before it gives up, and an answer is walked again by every
reader of a topic; honest answers have fewer than ten."""

FLOAT_DIGITS_MAX = 17
"""Significant digits that a double can need (IEEE 754); text with more was never one."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_CHARSETS = {
    "iso-8859-1": "cp1252",  # as browsers read it: WHATWG Encoding Standard, names and labels
    "latin1": "cp1252",
    "us-ascii": "cp1252",
    "windows-1252": "cp1252",
    "iso-8859-15": "iso-8859-15",
}


class NestedTooDeep(ValueError):
    """JSON with more than DEPTH_MAX levels."""


def decode(body: bytes, content_type: str) -> Any:
    """Return the value in `body`.

    Raises: NestedTooDeep; BodyUnusable with the reason, `cut` where the body only ended too early.
    """
    if not body.strip():
        raise BodyUnusable("the body is empty", cut=True)
    body = body.removeprefix(_BYTE_ORDER_MARK)
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "utf-8" not in str(error).lower():
            raise _unusable(body, error) from error
        value = _decode_other(body, content_type)
    if may_be_deeper(body, DEPTH_MAX) and is_deeper(value, DEPTH_MAX):
        raise NestedTooDeep(f"it is nested deeper than {DEPTH_MAX} levels")
    return value


def _decode_other(body: bytes, content_type: str) -> Any:
    """Decode a body that is no UTF-8, by the charset its header names."""
    charset = content_type.lower().partition("charset=")[2].split(";")[0].strip("\"' ")
    try:
        return _decode(body.decode(_CHARSETS[charset]).encode())
    except (KeyError, UnicodeDecodeError) as error:
        raise BodyUnusable("it is not UTF-8, as JSON must be", cut=False) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unusable(body, error) from error


def _unusable(body: bytes, error: Exception) -> BodyUnusable | NestedTooDeep:
    if isinstance(error, RecursionError):
        return NestedTooDeep(f"it is nested deeper than {DEPTH_MAX} levels")
    if body.lstrip().startswith(b"<"):
        # A page from something between us and the provider, which may be gone at the next try.
        return BodyUnusable("it is not JSON but a page (HTML or XML)", cut=True)
    if "truncated" in str(error):
        return BodyUnusable("the JSON is cut off", cut=True)
    return BodyUnusable(f"it is not JSON: {printable(str(error))}", cut=False)


def _float(text: str) -> float | str:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("Number out of range")
    if len(text) <= FLOAT_DIGITS_MAX and value:
        return value
    mantissa = text.lower().partition("e")[0]
    digits = mantissa.replace(".", "").strip("-0")
    if len(digits) > FLOAT_DIGITS_MAX or (digits and not value):
        return text
    return value


_decode = msgspec.json.Decoder(float_hook=_float).decode
