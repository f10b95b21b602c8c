"""How a cell stands in the sheet: text, and beside it what is known of the cell (S3).

A JSON string is stored as its characters; null as NULL; anything else as its JSON text, digit for
digit as it came. The metadata (`_rowmill_cells`, a JSON object by sheet name) says which are JSON.

One rule for NUL, which PostgreSQL refuses and SQLite's own functions stop at: it is left out, and
the cell is marked `sanitised`. The six characters \\u0000 of a text are no NUL and stay.
"""

from __future__ import annotations

import re

import msgspec

_decode = msgspec.json.Decoder().decode
_NUL_ESCAPE = re.compile(rb"((?<!\\)(?:\\\\)*)\\u0000")
"""The escape of NUL inside JSON text: a backslash that is not itself escaped."""


class CellMeta(msgspec.Struct, omit_defaults=True):
    """Metadata of one cell. An input cell has an entry only where there is something to say."""

    status: str | None = None
    provider: str | None = None
    error: str | None = None
    completed_at_ms: int | None = None
    reused: bool = False
    json: bool = False
    """The stored text is JSON, not the characters of a string."""
    sanitised: bool = False
    """NUL characters were left out."""


def stored(value: msgspec.Raw) -> tuple[str | None, bool, bool]:
    """Return (text, is JSON, sanitised) of a JSON value.

    Raises: ValueError where it is no JSON, or a string that is no valid Unicode.
    """
    found = _decode(value)
    if type(found) is str:
        if "\x00" not in found:
            return found, False, False
        return found.replace("\x00", ""), False, True
    if found is None:
        return None, False, False
    raw = bytes(value)
    sanitised = False
    if b"\\u0000" in raw:
        clean_raw = _NUL_ESCAPE.sub(rb"\1", raw)
        sanitised = clean_raw != raw
        raw = clean_raw
    if b"\n" in raw or b"\r" in raw:
        raw = msgspec.json.format(raw, indent=-1)
    return raw.decode(), True, sanitised


def without_nul(text: str | None) -> str | None:
    """Return a message without NUL characters."""
    return text.replace("\x00", "") if text is not None and "\x00" in text else text
