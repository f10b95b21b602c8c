"""A one-partition topic as this process sees it: read to its end, followed, written, read back."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.adapters.log_writer import LogWriter
from rowmill.topics.catalogue import TopicDefinition
from rowmill.topics.codec import encode, headers
from rowmill.topics.contracts import Contract


class View(Protocol):
    """A fold over the topic, such as `topics.views.RunsView`."""

    def apply(self, key: str, value: bytes | None, offset: int) -> object:
        """Fold one record in."""
        ...


V = TypeVar("V", bound=View)


class ViewedLog(Generic[V]):
    """`view` holds everything below the end that the last `start`, `read_on` or `write` saw."""

    def __init__(
        self, settings: Settings, topic: TopicDefinition, view: V, writer: LogWriter
    ) -> None:
        self.view = view
        self._topic = topic
        self._writer = writer
        self.reader = LogReader(settings, topic, self._apply)

    async def start(self) -> None:
        """Read the topic to its end, then follow it. Raises: LogUnreadable."""
        await self.reader.start()
        await self.read_on()

    async def stop(self) -> None:
        """Stop following."""
        await self.reader.stop()

    async def read_on(self) -> None:
        """Read to the end as it is now. Raises: LogUnreadable."""
        await self.reader.caught_up()

    async def write(self, key: str, record: Contract, *, source: str, run: str = "") -> int:
        """Write a record and wait until it is durable. Returns: its offset. Raises: LogUnwritable."""
        found = headers(record, id_=f"{self._topic.name}/{key}", source=source, run=run)
        written = await self._writer.write(self._topic, key, encode(record), headers=found)
        return int(written.offset)

    def _apply(self, record: LogRecord) -> None:
        self.view.apply(record.key, record.value, record.offset)
