"""Events in: `tool.requests`. Thin on purpose, an agent never waits (one loop feeds all topics)."""

from __future__ import annotations

from typing import Any

from rowmill.streams.dispatch.requests import Requests
from rowmill.streams.engine.app import RoleApp
from rowmill.topics.catalogue import TOOL_REQUESTS


def attach(app: RoleApp, requests: Requests) -> None:
    """Define the agent that hands requests over; they are acknowledged once answered."""

    @app.agent(app.raw_topic(TOOL_REQUESTS))
    async def on_tool_request(stream: Any) -> None:
        async for event in stream.noack().events():
            requests.offer(app.delivery(event))
