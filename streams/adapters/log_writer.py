"""Write records and know that the broker has them: a plain producer for mains and tools.

The roles write through the engine's producer instead, whose flush guards their commits.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordTooLargeError,
)
from aiokafka.structs import RecordMetadata

from rowmill.errors import InfrastructureError, UsageError
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import no_kafka
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.ports import Secrets
from rowmill.streams.tasks import closed
from rowmill.topics.catalogue import TopicDefinition
from rowmill.topics.codec import Headers
from rowmill.topics.connection import client_options

BATCH_BYTES = 128 << 10
"""Bytes of one batch: a partition's next send waits while as much is under way."""

REQUEST_BYTES_MAX = 4 << 20
"""The client's own bound; the broker's `max.message.bytes` is the one that decides."""


class LogUnwritable(InfrastructureError):
    """A record could not be written: the broker stayed away or refused it."""


class RecordTooLarge(LogUnwritable):
    """The broker takes no record of this size. Nothing of it was written."""


class CarriesSecret(UsageError):
    """A record that would carry a secret into a topic (R10). Nothing of it was written."""

    def __init__(self, topic: str, key: str, name: str) -> None:
        super().__init__(
            f'Record "{key}" of "{topic}" carries the secret {name} and was not written. Take the '
            "value out of the play, its parameters and the input's name and columns: a play names "
            "its secrets, only workers read them."
        )


class LogWriter:
    """An idempotent producer that waits for all replicas: what it acknowledged is durable.

    Its records carry no secret (R10).
    """

    def __init__(
        self,
        settings: Settings,
        *,
        client_id: str = "rowmill-log-writer",
        secrets: Secrets | None = None,
    ) -> None:
        """`secrets`: what no record may carry; unset: those of the environment."""
        self._settings = settings
        self._secrets = secrets or EnvironmentSecrets()
        self._producer = AIOKafkaProducer(
            **client_options(settings),
            client_id=client_id,
            acks="all",
            enable_idempotence=True,
            linger_ms=settings.producer_linger_ms,
            max_batch_size=BATCH_BYTES,
            max_request_size=REQUEST_BYTES_MAX,
        )
        self._open: set[asyncio.Future[Any]] = set()

    async def start(self) -> None:
        """Connect. Raises: LogUnwritable where no broker answers."""
        try:
            await self._producer.start()
        except (KafkaError, OSError) as error:
            await closed(self._producer.stop())
            raise LogUnwritable(no_kafka(self._settings, error)) from error

    async def stop(self) -> None:
        """Send what is enqueued, then disconnect."""
        await closed(self._producer.stop())

    def secret_in(self, value: bytes) -> str | None:
        """Return the name of a secret that keeps `value` from being written, None for none."""
        return self._secrets.found_in(value)

    async def send(
        self,
        topic: TopicDefinition,
        key: str,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Enqueue one record; waits while the partition's batches are full.

        `partition` None: murmur2 of the key, Kafka's default. Returns: a future of the broker's
        acknowledgement; look at it, or `flush` later: an error stands only there.
        Raises: LogUnwritable where the record can't even be enqueued; CarriesSecret.
        """
        name = f"{self._settings.topic_prefix}{topic.name}"
        if value is not None and (secret := self.secret_in(value)) is not None:
            raise CarriesSecret(name, key, secret)
        while True:
            try:
                sent = await self._producer.send(
                    name, value=value, key=key.encode(), partition=partition, headers=headers or []
                )
                break
            except KafkaTimeoutError:
                continue  # not enqueued: the broker is away, and the caller decides how long to wait
            except (KafkaError, OSError) as error:
                raise self._unwritable(name, key, error) from error
        future = cast("asyncio.Future[RecordMetadata]", sent)
        self._open.add(future)
        future.add_done_callback(self._forget_delivered)
        return future

    async def write(
        self,
        topic: TopicDefinition,
        key: str,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Write one record and wait until it is durable. Raises: LogUnwritable, CarriesSecret."""
        sent = await self.send(topic, key, value, partition=partition, headers=headers)
        try:
            return await asyncio.shield(sent)
        except (KafkaError, OSError) as error:
            raise self._unwritable(
                f"{self._settings.topic_prefix}{topic.name}", key, error
            ) from error
        finally:
            self._open.discard(sent)

    async def flush(self) -> None:
        """Wait until every record sent so far is durable. Raises: LogUnwritable for the first lost."""
        while self._open:
            sent = list(self._open)
            await asyncio.wait(sent)
            self._open.difference_update(sent)
            for future in sent:
                error = future.exception()
                if error is not None:
                    raise self._unwritable("a topic", "", error) from error

    @property
    def unacknowledged(self) -> int:
        """Records sent and not yet acknowledged, or failed and not yet looked at."""
        return len(self._open)

    def _forget_delivered(self, future: asyncio.Future[Any]) -> None:
        # A failed one stays until flush or write says so: no delivery error is ever swallowed.
        if not future.cancelled() and future.exception() is None:
            self._open.discard(future)

    def _unwritable(self, topic: str, key: str, error: BaseException) -> LogUnwritable:
        what = f'record "{key}" of "{topic}"' if key else "a record"
        if isinstance(error, MessageSizeTooLargeError | RecordTooLargeError):
            return RecordTooLarge(f"{what} is larger than the broker takes: {error}")
        return LogUnwritable(f"{self._settings.bootstrap} did not take {what}: {error}")
