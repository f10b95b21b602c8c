"""Events in: `rows.input` and `provider.results`. Thin on purpose: one loop feeds both topics."""

from __future__ import annotations

from typing import Any

from rowmill.streams.engine.app import RoleApp
from rowmill.streams.engine.dead_letter import set_aside
from rowmill.streams.rows.asks import Asks
from rowmill.streams.rows.intake import Intake
from rowmill.topics import codec
from rowmill.topics.catalogue import PROVIDER_RESULTS, ROWS_INPUT
from rowmill.topics.contracts import ProviderResult


def attach(app: RoleApp, intake: Intake, asks: Asks) -> None:
    """Define the agents that hand records over."""

    @app.agent(app.raw_topic(ROWS_INPUT))
    async def on_row(stream: Any) -> None:
        async for event in stream.noack().events():
            intake.offer(app.delivery(event))

    @app.agent(app.raw_topic(PROVIDER_RESULTS))
    async def on_result(stream: Any) -> None:
        async for event in stream.noack().events():
            delivery = app.delivery(event)
            try:
                result = codec.decode(ProviderResult, delivery.value)
            except codec.UndecodableRecord as error:
                set_aside(app, delivery, str(error))
                continue
            asks.answered(result)
            delivery.ack()  # a lost result is asked for again, so it needs no offset discipline
