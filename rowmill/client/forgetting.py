"""Forget receipts: their owners are asked to, in chunks, and watched while they do (R7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from rowmill.client.receipts import Brief, Newest, brief
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.adapters.log_writer import LogWriter
from rowmill.streams.core.receipts import CHUNK_KEYS
from rowmill.topics.catalogue import LANES, RECEIPTS_CHANGELOG, TOOL_REQUESTS
from rowmill.topics.codec import encode, headers
from rowmill.topics.contracts import Forget
from rowmill.topics.places import partition_of
from rowmill.topics.views import LanesView

ANSWER_S = 10.0
"""Longest wait for the owners of one chunk: an idle worker takes a wish in well under a second."""

Outcome = Literal["forgotten", "unknown", "open", "asked"]
"""`unknown`: there is no such receipt. `open`: its call is under way, it is left alone. `asked`: its
owner did not answer yet; it forgets the receipt once a dispatch worker runs."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What became of the wish to forget one receipt."""

    key: str
    outcome: Outcome


async def forget_receipts(settings: Settings, keys: Sequence[str]) -> list[Wish]:
    """Ask the owners to forget receipts; a key given twice is asked for once.

    Returns: what became of each key, in the order given. Raises: LogUnreadable, LogUnwritable.
    """
    wanted = list(dict.fromkeys(keys))
    view = Newest(wanted, brief)
    receipts = LogReader(settings, RECEIPTS_CHANGELOG, view.apply)
    lanes = LanesView(settings.partitions)
    writer = LogWriter(settings, client_id="rowmill-receipts")
    await receipts.start()
    try:
        await receipts.caught_up()
        await _read_lanes(settings, lanes)
        await writer.start()
        outcomes: dict[str, Outcome] = {}
        for chunk in chunks(wanted):
            outcomes |= await _forget(chunk, view, lanes, writer)
    finally:
        await writer.stop()
        await receipts.stop()
    return [Wish(key, outcomes[key]) for key in keys]


def chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    """Cut keys into chunks of CHUNK_KEYS, in order."""
    left = iter(keys)
    while chunk := list(islice(left, CHUNK_KEYS)):
        yield chunk


async def _forget(
    chunk: list[str], view: Newest[Brief], lanes: LanesView, writer: LogWriter
) -> dict[str, Outcome]:
    asked = []
    for key in chunk:
        receipt = view.get(key)
        lane = lanes.get(receipt.tool) if receipt is not None else None
        if lane is not None:
            wish = Forget(receipt=key)
            found = headers(wish, id_=f"forget/{key}", source="rowmill/receipts")
            partition = partition_of(key, lane)
            await writer.send(TOOL_REQUESTS, key, encode(wish), partition=partition, headers=found)
            asked.append(key)
    await writer.flush()
    await _until_forgotten(asked, view)
    return {key: _outcome(key, view, asked) for key in chunk}


async def _until_forgotten(asked: list[str], view: Newest[Brief]) -> None:
    left = {key for key in asked if _is_settled(key, view)}
    until_s = time.monotonic() + ANSWER_S
    while left and time.monotonic() < until_s:
        await asyncio.sleep(0.05)
        left = {key for key in left if _is_settled(key, view)}


def _is_settled(key: str, view: Newest[Brief]) -> bool:
    """True for a receipt that its owner should forget: one with an open call is left alone."""
    receipt = view.get(key)
    return receipt is not None and receipt.final


def _outcome(key: str, view: Newest[Brief], asked: list[str]) -> Outcome:
    receipt = view.get(key)
    if receipt is None:
        return "forgotten" if key in asked else "unknown"
    return "asked" if receipt.final else "open"


async def _read_lanes(settings: Settings, lanes: LanesView) -> None:
    def take(record: LogRecord) -> None:
        lanes.apply(record.key, record.value, record.offset)

    await LogReader(settings, LANES, take).read_once()
