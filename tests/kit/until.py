"""Wait for a condition with a deadline: the only synchronisation tests may use."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def until(
    condition: Callable[[], Any | Awaitable[Any]], *, within_s: float, every_s: float = 0.02
) -> Any:
    """Return the first true value of `condition`. Raises: TimeoutError after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"not true within {within_s} s: {inspect.getsource(condition).strip()}"
            )
        await asyncio.sleep(every_s)


def until_sync(condition: Callable[[], Any], *, within_s: float, every_s: float = 0.05) -> Any:
    """As `until`, for tests without a loop."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"not true within {within_s} s: {inspect.getsource(condition).strip()}"
            )
        time.sleep(every_s)
    return value
