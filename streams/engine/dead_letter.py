"""Set aside a record that nobody can read: with topic, partition, offset and reason (O25)."""

from __future__ import annotations

import asyncio
import base64
import time

import structlog

from rowmill.streams.engine.app import RoleApp
from rowmill.streams.engine.delivery import Delivery
from rowmill.topics import codec
from rowmill.topics.catalogue import DEAD_LETTER
from rowmill.topics.contracts import DeadLetter

log = structlog.get_logger(__name__)


def set_aside(app: RoleApp, delivery: Delivery, reason: str) -> None:
    """Write the record to the dead-letter topic and acknowledge it once that is durable."""
    letter = DeadLetter(
        topic=delivery.topic,
        partition=delivery.partition,
        offset=delivery.offset,
        reason=reason,
        key=None if delivery.key is None else delivery.key.decode("utf-8", "replace"),
        value_base64=None if delivery.value is None else base64.b64encode(delivery.value).decode(),
        at_ms=time.time_ns() // 1_000_000,
    )
    where = f"{delivery.topic}/{delivery.partition}/{delivery.offset}"
    log.warning("record_set_aside", where=where, reason=reason)
    sent = app.produce(
        DEAD_LETTER,
        key=where,
        value=codec.encode(letter),
        headers=codec.headers(letter, id_=where, source=app.conf.id),
    )
    sent.add_done_callback(lambda done: _acknowledge(done, delivery))


def _acknowledge(done: asyncio.Future[object], delivery: Delivery) -> None:
    if not done.cancelled() and done.exception() is None:
        delivery.ack()
