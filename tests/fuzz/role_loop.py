"""Runs the agents that a role really has, over deliveries made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

from rowmill.topics.catalogue import TopicDefinition
from tests.fuzz.strict_engine import StrictApp
from tests.kit.fake_engine import FakeDelivery

Agent = Callable[[Any], Coroutine[Any, Any, None]]


class AgentApp(StrictApp):
    """Keeps the agents that a role defines, by topic."""

    def __init__(self) -> None:
        super().__init__()
        self.agents: dict[str, Agent] = {}

    def raw_topic(self, topic: TopicDefinition) -> str:
        """As `RoleApp.raw_topic`."""
        return topic.name

    def agent(self, topic: str) -> Callable[[Agent], Agent]:
        """As Faust's."""

        def keep(agent: Agent) -> Agent:
            self.agents[topic] = agent
            return agent

        return keep

    def delivery(self, event: FakeDelivery) -> FakeDelivery:
        """As `RoleApp.delivery`: here the event is the delivery."""
        return event

    async def feed(self, topic: TopicDefinition, *deliveries: FakeDelivery) -> None:
        """Let an agent take deliveries in. Raises: what it raises; the worker would end."""
        await self.agents[topic.name](_Stream(deliveries))


class _Stream:
    def __init__(self, deliveries: Iterable[FakeDelivery]) -> None:
        self._deliveries = deliveries

    def noack(self) -> _Stream:
        return self

    async def events(self) -> AsyncIterator[FakeDelivery]:
        for delivery in self._deliveries:
            yield delivery
