"""A provider's words about a failure, fit to be shown: found in the body, short, printable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

WORDS_CHARACTERS_MAX = 300
"""A sentence or two; what a provider says goes into receipts, the sheet and a terminal."""

_READ_CHARACTERS_MAX = 4_000
_DEPTH_MAX = 4
_WORD_MEMBERS = (
    "error",
    "errors",
    "message",
    "msg",
    "detail",
    "details",
    "title",
    "description",
    "reason",
)
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)

_CREDITS_GONE = re.compile(
    r"insufficient[_ -](?:credit|fund|balance|quota)|(?:out of|not enough|no(?: more| remaining)?) credit"
    r"|credits?[_ -](?:are |is |have been |has been )?(?:exhausted|used[_ -]up|depleted)"
    r"|quota[_ -](?:is |has been )?(?:exhausted|used[_ -]up)|payment[_ -]required"
)
"""What says that only money helps. "Quota exceeded" is not among it: with 429 it is what providers say
about requests a minute."""


def words_of(body: bytes) -> str:
    """Return what the body says, "" where it says nothing readable."""
    try:
        found = dict.fromkeys(_texts(msgspec.json.decode(body), 0))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return printable(_plain_text(body))
    return printable(": ".join(found))


def credits_gone(body: bytes) -> bool:
    """Say whether the body speaks of credits or a quota that is used up."""
    return bool(_CREDITS_GONE.search(_decoded(body).lower()))


def printable(text: str) -> str:
    """Return `text` on one line, without control and formatting characters, at most 300 long."""
    # isprintable() is false for controls, ESC, bidirectional marks and lone surrogates alike.
    bounded = text[: 4 * WORDS_CHARACTERS_MAX]
    plain = "".join(letter if letter.isprintable() else " " for letter in bounded)
    line = " ".join(plain.split())
    if len(line) <= WORDS_CHARACTERS_MAX:
        return line
    return line[: WORDS_CHARACTERS_MAX - 1].rstrip() + "…"


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEPTH_MAX and isinstance(value, dict):
        for name in _WORD_MEMBERS:
            if value.get(name):
                yield from _texts(value[name], depth + 1)
    elif depth < _DEPTH_MAX and isinstance(value, list):
        for one in value[:3]:
            yield from _texts(one, depth + 1)


def _plain_text(body: bytes) -> str:
    text = _decoded(body)
    if not text.lstrip().startswith("<"):
        return text
    title = _TITLE.search(text)
    return title[1] if title else ""


def _decoded(body: bytes) -> str:
    return body[:_READ_CHARACTERS_MAX].decode("utf-8", "replace")
