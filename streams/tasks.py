"""Closing what others wrote, in tasks that may be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def closed(closing: Coroutine[Any, Any, None]) -> None:
    """Await a library's `stop` or `close` to its end; a cancellation meanwhile is raised after it.

    aiokafka's wait for tasks of their own under `suppress(CancelledError)` (client.py, `close`;
    consumer/fetcher.py, `close`): a cancellation that comes then is lost, its task goes on, and who
    waits for that task's end waits for ever. Raises: what the closing raises.
    """
    task = asyncio.ensure_future(closing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
