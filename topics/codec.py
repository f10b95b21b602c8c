"""Bytes on the wire: UTF-8 JSON that `kcat` can read, and the headers beside it.

JSON in: msgspec (keeps all digits of integers, refuses NaN and Infinity), then the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from rowmill.streams.core.nesting import is_deeper, may_be_deeper
from rowmill.topics.contracts.base import Contract

C = TypeVar("C", bound=Contract)
Headers = list[tuple[str, bytes]]

REASON_CHARS_MAX = 500

DEPTH_MAX = 128
"""Levels of nesting. Answers and values of plays have 100 at most, records add a few. Whoever reads a
record writes it again, from a place where Python may have fewer levels left."""

_TOO_DEEP = f"it is nested deeper than {DEPTH_MAX} levels"

_decode = msgspec.json.Decoder().decode


class UndecodableRecord(ValueError):
    """A record whose bytes are no record of the contract; the message is the dead letter's reason.

    It quotes the record, which may be of any length: it is cut where it is long.
    """

    def __init__(self, reason: str) -> None:
        shown = reason if len(reason) <= REASON_CHARS_MAX else reason[: REASON_CHARS_MAX - 1] + "…"
        super().__init__(shown)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.__dict__
    raise TypeError(f"{type(value).__name__} is no JSON value")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode(record: Contract) -> bytes:
    """Return the record's JSON, fields in the contract's order.

    Values are not validated again: a contract is frozen, and the roles refuse what is no JSON.
    """
    return _encoder.encode(record.__dict__)


def decode(contract: type[C], value: bytes | None) -> C:
    """Return the record in `value`. Raises: UndecodableRecord with a reason that a user can read."""
    return _validated(contract, _object(value))


def decode_kind(
    contracts: Mapping[str, type[Contract]], default: str, value: bytes | None
) -> Contract:
    """Return a record of a topic that carries several contracts, told apart by their field `kind`.

    `default`: the kind of a record that names none. Raises: UndecodableRecord.
    """
    plain = _object(value)
    kind = plain.get("kind", default)
    contract = contracts.get(kind) if isinstance(kind, str) else None
    if contract is None:
        raise UndecodableRecord(f"kind {kind!r}; this worker knows {', '.join(contracts)}")
    return _validated(contract, plain)


def _object(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise UndecodableRecord("the record has no value")
    try:
        plain = _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UndecodableRecord(f"not JSON: {error}") from error
    except RecursionError as error:
        raise UndecodableRecord(_TOO_DEEP) from error
    if may_be_deeper(value, DEPTH_MAX) and is_deeper(plain, DEPTH_MAX):
        raise UndecodableRecord(_TOO_DEEP)
    if not isinstance(plain, dict):
        raise UndecodableRecord(f"expected a JSON object, got {type(plain).__name__}")
    return plain


def _validated(contract: type[C], plain: dict[str, Any]) -> C:
    version = plain.get("schema_version", 1)
    if not isinstance(version, int) or version > contract.VERSION or version < 1:
        raise UndecodableRecord(
            f"schema version {version} of {contract.TYPE}; this worker reads up to "
            f"{contract.VERSION}. Upgrade the worker, then replay."
        )
    try:
        return contract.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UndecodableRecord(f"not a {contract.TYPE}: {where}: {first['msg']}") from error


def headers(
    record: Contract, *, id_: str, source: str, run: str = "", traceparent: str = ""
) -> Headers:
    """Return the headers of a record: CloudEvents' Kafka binding in binary mode, and our two.

    Source: CloudEvents Kafka Protocol Binding 1.0.2, section 3.2.
    """
    found: Headers = [
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_id", id_.encode()),
        ("ce_source", source.encode()),
        ("ce_type", f"{record.TYPE}.v{record.VERSION}".encode()),
        ("rowmill_schema", str(record.VERSION).encode()),
    ]
    if run:
        found.append(("rowmill_run", run.encode()))
    if traceparent:
        found.append(("traceparent", traceparent.encode()))
    return found


def header(found: Iterable[tuple[str, bytes]], name: str) -> str | None:
    """Return one header's text, None where it is missing or not UTF-8."""
    for key, value in found:
        if key == name:
            return value.decode("utf-8", "replace")
    return None
