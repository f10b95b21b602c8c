"""Set aside a record that nobody can read: with topic, partition, offset and reason (O25)."""

from __future__ import annotations

import base64
import time

import structlog

from rowmill.streams.engine.app import RoleApp
from rowmill.streams.engine.delivery import Delivery
from rowmill.topics import codec
from rowmill.topics.catalogue import DEAD_LETTER
from rowmill.topics.contracts import DeadLetter

log = structlog.get_logger(__name__)

COPIED_BYTES_MAX = 600_000
"""Of a value: base64 makes 800 kB of it, and a letter is a record, of 1 MB at most."""

KEY_BYTES_MAX = 4_096
"""Of a key: as JSON text a byte may become six."""


def set_aside(app: RoleApp, delivery: Delivery, reason: str) -> None:
    """Write the record to the dead-letter topic and acknowledge it once that is durable.

    A record that carries a secret is told of, not copied (R10); so is one that is too large.
    """
    where = f"{delivery.topic}/{delivery.partition}/{delivery.offset}"
    key, value = delivery.key, delivery.value
    if (name := app.secrets.found_in((key or b"") + b"\n" + (value or b""))) is not None:
        key = value = None
        reason = f"{reason}; key and value are left out: they carry the secret {name}"
    if (name := app.secrets.found_in(reason.encode())) is not None:
        reason = f"the reason carries the secret {name}: left out"
    if key is not None and len(key) > KEY_BYTES_MAX:
        reason = f"{reason}; the key is left out: {len(key):,} bytes"
        key = None
    if value is not None and len(value) > COPIED_BYTES_MAX:
        reason = f"{reason}; the value is left out: {len(value):,} bytes, see the record itself"
        value = None
    letter = DeadLetter(
        topic=delivery.topic,
        partition=delivery.partition,
        offset=delivery.offset,
        reason=reason,
        key=None if key is None else key.decode("utf-8", "replace"),
        value_base64=None if value is None else base64.b64encode(value).decode(),
        at_ms=time.time_ns() // 1_000_000,
    )
    log.warning("record_set_aside", where=where, reason=reason)
    sent = app.produce(
        DEAD_LETTER,
        key=where,
        value=codec.encode(letter),
        headers=codec.headers(letter, id_=where, source=app.conf.id),
    )
    delivery.ack_after(sent)
