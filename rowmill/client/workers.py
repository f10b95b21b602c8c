"""Is anybody there to work? Asked of the broker, so that it is true for any cluster."""

from __future__ import annotations

import time
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from rowmill.errors import InfrastructureError
from rowmill.settings import Settings
from rowmill.streams.tasks import closed
from rowmill.topics.connection import client_options

ROLES = ("rows", "dispatch", "sink")

ASK_EVERY_S = 5.0
"""How often the broker is asked for the members of the roles' groups."""


class Workers:
    """Which roles have no member in their consumer group, and since when."""

    def __init__(self, settings: Settings) -> None:
        self._groups = {f"{settings.topic_prefix}rowmill-{role}": role for role in ROLES}
        self._admin = AIOKafkaAdminClient(**client_options(settings), client_id="rowmill-client")
        self._started = False
        self._absent_since: dict[str, float] = {}

    async def look(self) -> bool:
        """Ask the broker; False where it did not answer, and what was known is kept."""
        try:
            if not self._started:
                await self._admin.start()
                self._started = True
            # One group at a time: aiokafka 0.14 reads version 3 of the answer as version 2
            # (protocol/admin.py, DescribeGroupsRequest_v3), which shifts every group but the first.
            answers = [
                answer
                for group in self._groups
                for answer in await self._admin.describe_consumer_groups([group])
            ]
        except (KafkaError, OSError, TimeoutError):
            return False
        present = {
            self._groups[group] for group in _groups_with_members(answers) if group in self._groups
        }
        now_s = time.monotonic()
        for role in ROLES:
            if role in present:
                self._absent_since.pop(role, None)
            else:
                self._absent_since.setdefault(role, now_s)
        return True

    def absent(self) -> dict[str, float]:
        """Return the roles nobody serves, each with the seconds since that was first seen."""
        now_s = time.monotonic()
        return {role: now_s - since_s for role, since_s in self._absent_since.items()}

    async def stop(self) -> None:
        """Disconnect."""
        await closed(self._admin.close())


def _groups_with_members(answers: list[Any]) -> set[str]:
    found = set()
    for answer in answers:
        for _error, group, _state, _protocol_type, _protocol, members, *_rest in answer.groups:
            if members:
                found.add(group)
    return found


async def missing_roles(settings: Settings) -> set[str]:
    """Return the roles that nobody serves in this cluster.

    Raises: InfrastructureError where the cluster can't be asked.
    """
    workers = Workers(settings)
    try:
        if not await workers.look():
            raise InfrastructureError(
                f"No Kafka at {settings.bootstrap}. Start it, or unset ROWMILL_KAFKA to use the "
                "embedded broker. Nothing was called."
            )
        return set(workers.absent())
    finally:
        await workers.stop()
