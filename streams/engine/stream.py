"""Streams whose events cost a queue read: what `stream.noack().events()` gives an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from faust import Event, Stream

YIELD_EVERY = 64
"""Events after which the loop gets a turn although the agent never waits."""


class RoleStream(Stream[Any]):
    """Faust's stream with a short road for events that are acknowledged by hand.

    Faust's iterator (Cython and Python alike) takes a turn of the loop, four sensor calls and a
    context variable an event, a quarter of the cost of a hop. Streams that acknowledge by themselves
    keep Faust's road; their acknowledgements end in the same offset tracker.
    """

    async def events(self) -> AsyncIterator[Event]:
        """Yield events whose partition is still owned in the assignment they came with."""
        if self.enable_acks:
            async for acked in super().events():
                yield cast(Event, acked)
            return
        await self.maybe_start()
        queue = cast(Any, self.channel).queue
        turns = 0
        while not self.should_stop:
            if queue.empty():
                try:
                    event = await queue.get()
                except StopAsyncIteration:  # Faust throws it in at a stop
                    return
                turns = 0
            else:
                event = queue.get_nowait()
                turns += 1
                if turns >= YIELD_EVERY:
                    turns = 0
                    await asyncio.sleep(0)
            if event.message.delivery.live:
                yield event
