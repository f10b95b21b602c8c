"""Bad input made quickly: a good one with a few bytes or one field changed, so that it comes far.

Everything follows from one short byte string an input: a third of a millisecond, where strategies of
strategies take several. It shrinks well all the same: fewer bytes are fewer changes, smaller ones are
places further ahead and the first tokens of the lists.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

Path = tuple[str | int, ...]
Plain = dict[str, Any]

TOKENS = (
    b"", b"\0", b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3\x28",
    b"\n", b"\r", b"\r\n", b"\x1b[2J", b"\x85", b"\xe2\x80\xa8", b" ", b'"', b"'", b'""', b",",
    b";", b"\t", b"{", b"}", b"[", b"]", b":", b"\\", b"\\u0000", b"\\ud800", b"\\udfff\\ud800",
    b"/", b"//", b"#", b"?", b"&", b"=", b"%", b"%00", b"%zz", b"@", b"<", b"<html>", b"null",
    b"true", b"NaN", b"Infinity", b"-", b"0", b"-1", b"1e999", b"1e-999", b"0.1", b"1" * 20,
    b"9" * 400, b"9" * 5000, b"[" * 60, b"[" * 2000, b'{"a":' * 1200, b"a" * 300, b"\xf0\x9f\x98\x80",
    b"!epoch", b"~counts/", b"\xe2\x80\xae", b"canary/s3cret+v4lue",
)  # fmt: skip

ODD_TEXTS = (
    "", " ", "\0", "\0m", "a\0b", "!epoch", "~counts/run", "run/row", "/", "..", "../../etc/passwd",
    "-1", "0", "1", "nan", "inf", "-inf", "1e400", "1e308", "9" * 25, "true", "None", "ask", "renew",
    "settle", "row", "patch", "open", "finished", "all", "failed", "completed", "running", "queued",
    "\n", "\r\n", "\x1b[31m", "\u202e", "\ufeff", "\ud7ff", "\U0001f600", "é" * 50, "x" * 300,
    "x" * 70_000, "2026-12-02", "http://[", "http://h:99999", "canary/s3cret+v4lue",
)  # fmt: skip

ODD_NUMBERS = (
    0, -1, 1, 2, 7, 8, 63, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 53) + 1,
    (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, 1 << 64, 10**30, 10**400, -(10**400),
    0.0, -0.0, 0.5, -0.5, 1e-320, 1e-9, 1e15, 1e16, 1e300, 1.7e308, -1.7e308,
)  # fmt: skip


ODD_VALUES: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None], {"": None}, {"a": {}}, [0] * 300, {"kind": "ask"},
    {str(number): number for number in range(300)},
    *(Raw(b"[" * levels + b"]" * levels) for levels in (90, 150, 600, 950, 990, 5_000)),
    *(Raw(b'{"a":' * levels + b"1" + b"}" * levels) for levels in (90, 150, 600, 950, 990, 5_000)),
    *map(Raw, (b'"\\ud800"', b'"\\u0000"', b"1e400", b"-" + b"9" * 400, b"9" * 5_000, b"0." + b"1" * 999)),
    *ODD_TEXTS, *ODD_NUMBERS,
)  # fmt: skip

_CHANGE_BYTES = 5


def changed_bytes(corpus: Sequence[bytes]) -> Callable[[bytes], bytes]:
    """Return what makes good bytes with one to four places cut out and overwritten, or bytes of no kind."""
    return lambda drawn: _bytes_changed(corpus, drawn)


def changed_records(corpus: Sequence[Plain]) -> Callable[[bytes], Any]:
    """Return what makes good records with a field or two changed, or a JSON value of no kind.

    A change sets a field to an odd value, or drops it.
    """
    places = [list(paths(plain)) for plain in corpus]
    return lambda drawn: _record_changed(corpus, places, drawn)


def changed_wire(corpus: Sequence[Plain]) -> Callable[[bytes], tuple[int, bytes]]:
    """Return what makes what may stand in a topic, and the place in `corpus` of the record that it was.

    Three of four as `changed_records`, the others as `changed_bytes`.
    """
    wires = [wire(plain) for plain in corpus]
    places = [list(paths(plain)) for plain in corpus]

    def change(drawn: bytes) -> tuple[int, bytes]:
        number = _number(drawn[:2]) % len(corpus)
        if drawn[-1] % 4 == 3:
            return number, _bytes_changed(wires, drawn)
        return number, wire(_record_changed(corpus, places, drawn))

    return change


def wire(value: Any) -> bytes:
    """Return a JSON value's bytes; `msgspec.Raw` inside it stands as it is, however deep."""
    return msgspec.json.encode(value)


def _bytes_changed(corpus: Sequence[bytes], drawn: bytes) -> bytes:
    if drawn[0] > _NO_KIND:
        return drawn[1:]
    content = corpus[_number(drawn[:2]) % len(corpus)]
    for one in _changes(drawn):
        start = _number(one[:2]) * (len(content) + 1) >> 16
        token = TOKENS[one[3] % len(TOKENS)]
        content = content[:start] + token + content[start + one[2] % 13 :]
    return content


def _record_changed(corpus: Sequence[Plain], places: list[list[Path]], drawn: bytes) -> Any:
    number = _number(drawn[:2]) % len(corpus)
    if drawn[0] > _NO_KIND:
        return odd(drawn[1:])
    plain = copy.deepcopy(corpus[number])
    for one in _changes(drawn)[: 1 + drawn[1] % 2]:
        path = places[number][_number(one[:2]) % len(places[number])]
        _change(plain, path, odd(one[2:]), drop=one[2] > _NO_KIND)
    return plain


def odd(drawn: bytes) -> Any:
    """Return a JSON value that is probably not what was expected."""
    number = _number(drawn[-2:])
    match drawn[0] % 8:
        case 0:
            return number
        case 1:
            return -number / 7
        case 2:
            return drawn.decode("latin-1")
        case _:
            value = ODD_VALUES[number % len(ODD_VALUES)]
            return copy.deepcopy(value) if isinstance(value, dict | list) else value


_NO_KIND = 239


def _number(drawn: bytes) -> int:
    return int.from_bytes(drawn)


def _changes(drawn: bytes) -> list[bytes]:
    starts = range(2, len(drawn) - _CHANGE_BYTES + 1, _CHANGE_BYTES)
    return [drawn[start : start + _CHANGE_BYTES] for start in starts]


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield where something stands in a JSON value: each field and each entry of a list."""
    entries: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, dict):
        entries = iter(value.items())
    elif isinstance(value, list):
        entries = iter(enumerate(value))
    for name, inner in entries:
        yield (*at, name)
        yield from paths(inner, (*at, name))


def _change(plain: Plain, path: Path, value: Any, *, drop: bool) -> None:
    place: Any = plain
    try:
        for step in path[:-1]:
            place = place[step]
        if drop:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    except (KeyError, IndexError, TypeError):
        pass  # an earlier change took the place away
