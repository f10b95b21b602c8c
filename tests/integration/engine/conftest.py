"""Topics of a test's own with two partitions, and puppets to work on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.settings import Settings
from rowmill.topics.creation import create_topics
from tests.integration.engine.stage import Start, puppets
from tests.kit.broker import SessionBroker, fresh_settings


@pytest.fixture
def settings(broker: SessionBroker, tmp_path: Path) -> Settings:
    """Settings with quick sessions and commits; the topics exist."""
    found = fresh_settings(
        broker,
        tmp_path / "home",
        partitions=2,
        session_timeout_s=6,
        heartbeat_s=1,
        commit_interval_s=0.1,
    )
    asyncio.run(create_topics(found))
    return found


@pytest.fixture
def puppet(settings: Settings) -> Iterator[Start]:
    """Start puppets on the test's topics; they are killed at the end."""
    yield from puppets(settings)
