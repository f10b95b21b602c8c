"""The fake engine, as unforgiving as the real one: what would raise or hang there, raises here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rowmill.streams.engine.producer import RecordTooLarge
from rowmill.topics.catalogue import TopicDefinition
from tests.kit.fake_engine import FakeApp, FakeDelivery, FakeTable

PARTITIONS = 8
REQUEST_BYTES_MAX = 1_000_000


class StrictApp(FakeApp):
    """Refuses what the real producer refuses: a record that is too large, a partition there is not."""

    def produce(
        self,
        topic: TopicDefinition,
        *,
        key: str,
        value: bytes,
        partition: int | None = None,
        headers: Any = None,
    ) -> asyncio.Future[Any]:
        """As `RoleApp.produce`."""
        check_size(topic.name, key.encode(), value, headers)
        if partition is not None and not 0 <= partition < PARTITIONS:
            # The real one would wait for a leader that never comes, and so would every commit.
            raise AssertionError(f"{topic.name} has no partition {partition}")
        return super().produce(topic, key=key, value=value, partition=partition, headers=headers)


class StrictTable(FakeTable):
    """Refuses the keys that the real table refuses, and those that are the engine's own."""

    def put(self, partition: int, key: str, value: bytes) -> asyncio.Future[None]:
        """As `DurableTable.put`."""
        self._check(key, value)
        return super().put(partition, key, value)

    def delete(self, partition: int, key: str) -> asyncio.Future[None]:
        """As `DurableTable.delete`."""
        self._check(key, None)
        return super().delete(partition, key)

    def _check(self, key: str, value: bytes | None) -> None:
        if not key or key[0] == "\0":
            raise ValueError(f"{key!r} can't be a key")
        assert not key.startswith(("!", "~")), f"{key!r} is the engine's, or the role's own"
        check_size("changelog", key.encode(), value, [])


def check_size(topic: str, key: bytes, value: bytes | None, headers: Any) -> None:
    """Raise what the real producer raises for a record that is too large."""
    size = len(key) + len(value or b"") + sum(len(name) + len(text) for name, text in headers or ())
    if size > REQUEST_BYTES_MAX:
        raise RecordTooLarge(topic, size, REQUEST_BYTES_MAX)


def set_aside(app: FakeApp, delivery: FakeDelivery) -> bool:
    """Return whether a delivery is in the dead letter, with a reason."""
    letters: list[Any] = app.produced["rows.dead-letter"]
    return any(letter.offset == delivery.offset and letter.reason for letter in letters)


class Loop:
    """A loop for many short examples: what a task raises, or leaves behind, is found at its end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._errors: list[str] = []
        self._loop.set_exception_handler(self._note)

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one example, then cancel what it left. Raises: what it, or one of its tasks, raised."""
        self._errors.clear()
        try:
            self._loop.run_until_complete(work())
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                ended = asyncio.gather(*left, return_exceptions=True)
                self._loop.run_until_complete(ended)
        assert not self._errors, self._errors

    def close(self) -> None:
        """End the loop."""
        self._loop.close()

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._errors.append(f"{context['message']}: {error!r}")
