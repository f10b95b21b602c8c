"""Events in: `rows.completed`. Thin on purpose, an agent never waits (one loop feeds all topics)."""

from __future__ import annotations

from typing import Any

from rowmill.streams.engine.app import RoleApp
from rowmill.streams.sink.intake import Intake
from rowmill.topics.catalogue import ROWS_COMPLETED


def attach(app: RoleApp, intake: Intake) -> None:
    """Define the agent that hands rows over; they are acknowledged once a sheet has them."""

    @app.agent(app.raw_topic(ROWS_COMPLETED))
    async def on_row_completed(stream: Any) -> None:
        async for event in stream.noack().events():
            intake.offer(app.delivery(event))
