"""Values on their way between play code and records: models and Python values to JSON and back."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from rowmill.plays.sites import brief

DEPTH_MAX = 100
"""Levels of nesting. Deeper answers exist only by accident or malice, and readers recurse."""

_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((set, frozenset), "use a sorted list"),
    ((datetime, date, time), "use .isoformat()"),
    (Decimal, "use str() or float()"),
    ((bytes, bytearray), "use .decode() or base64 text"),
)

INT_BITS_MAX = 13_000
"""Some 4,000 digits: Python refuses to write, and to read, integers of more than 4,300."""


class NotJson(ValueError):
    """A value of a play can't be kept as JSON. The message names its path and what to use."""


def to_json(value: Any, path: str = "value", *, bytes_max: int | None = None) -> Any:
    """Return `value` as plain JSON: None, bool, int, float, str, list, dict with str keys.

    Models become objects under their aliases, tuples lists, enums their values.

    Args: `path`: what the value is called in an error, such as `column "label"`. `bytes_max`: bound
    of the encoded size, bytes. Raises: NotJson naming the path.

    >>> to_json({"tags": ("a", 1), "at": None})
    {'tags': ['a', 1], 'at': None}
    >>> to_json({"tags": {"a"}}, 'column "label"')
    Traceback (most recent call last):
        ...
    rowmill.plays.values.NotJson: column "label".tags is a set, not JSON; use a sorted list
    """
    plain = _plain(value, path, 0)
    if bytes_max is not None:
        size = len(msgspec.json.encode(plain))
        if size > bytes_max:
            raise NotJson(f"{path} is {size:,} bytes as JSON, the limit is {bytes_max:,}")
    return plain


def _plain(value: Any, path: str, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Enum):
        return _plain(value.value, path, depth)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        if value.bit_length() > INT_BITS_MAX:
            raise NotJson(f"{path} is a number of more than 4,000 digits; use str()")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{path} is {value}, which JSON can't hold; use None")
        return float(value)
    if depth >= DEPTH_MAX:
        raise NotJson(f"{path} is nested deeper than {DEPTH_MAX} levels, or holds itself")
    if isinstance(value, BaseModel):
        return _plain(_dumped(value, path), path, depth)
    if isinstance(value, Mapping):
        return {
            _key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(value)]
    raise NotJson(f"{path} is {_named(value)}, not JSON{_hint(value)}")


def _dumped(model: BaseModel, path: str) -> Any:
    try:
        return model.model_dump(mode="json", by_alias=True)
    except PydanticSerializationError as error:
        raise NotJson(f"{path} is {_named(model)} that can't be JSON: {error}") from None


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotJson(f"{path} holds half a character (a lone surrogate)") from None
    return str(value)


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return _text(key, path)
    raise NotJson(f"{path} has the key {brief(key)}; the keys of a JSON object are text")


def _named(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _hint(value: Any) -> str:
    if inspect.isawaitable(value):
        return "; a function that awaits must be `async def (row, ctx)`"
    for types, hint in _HINTS:
        if isinstance(value, types):
            return f"; {hint}"
    return "; use text, numbers, lists, dicts or a pydantic model"
