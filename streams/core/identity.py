"""Who asks and what is asked: row ids, receipt keys, idempotency keys (I1, R1, Q7).

All digests are the first 128 bits of SHA-256 over canonical JSON, as 32 hexadecimal characters.
Canonical JSON is msgspec's `order="sorted"`: keys sorted, no spaces, numbers as written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(order="sorted")


def canonical(value: Any) -> bytes:
    """Return canonical JSON of `value`.

    Raises: ValueError where `value` holds NaN or Infinity (msgspec would write null), TypeError
    where it is no JSON value.
    """
    _refuse_non_finite(value)
    return _encoder.encode(value)


def _refuse_non_finite(value: Any) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
    elif isinstance(value, Mapping):
        for item in value.values():
            _refuse_non_finite(item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            _refuse_non_finite(item)


def digest(value: Any) -> str:
    """Return the 32-character digest of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()[:32]


def row_id(dataset: str, key: Any | None, values: Mapping[str, Any]) -> str:
    """Return a row's identity (I1): of its explicit key, or of the whole cleaned input row."""
    return digest(
        ["row", dataset, "values", dict(cleaned(values))]
        if key is None
        else ["row", dataset, "key", key]
    )


def refused_row_id(dataset: str, index: int) -> str:
    """Return the identity of an input row that can't run: its place, so it is no one's duplicate.

    `index`: place in the input, from 0.
    """
    return digest(["row", dataset, "refused", index])


def cleaned(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an input row without NUL characters in its texts; the same object where it has none.

    PostgreSQL refuses NUL in text and in jsonb; removed at the door, both databases keep the same.
    """
    if not any(isinstance(value, str) and "\0" in value for value in values.values()):
        return values
    return {
        name: value.replace("\0", "") if isinstance(value, str) else value
        for name, value in values.items()
    }


def receipt_key(
    organisation: str, scope: str, tool: str, version: int, host: str, input_: Mapping[str, Any]
) -> str:
    """Return the key of one question (R1). Force, time-outs, limits and secrets never enter it.

    `host`: lower case, without scheme and port.
    """
    return digest(["receipt", organisation, scope, tool, version, host, dict(input_)])


def idempotency_key(receipt: str, purchase: str) -> str:
    """Return what the provider sees in `Idempotency-Key` (Q7): stable over retries and takeovers."""
    return digest(["purchase", receipt, purchase])
