"""One record handed to a role, and the message of Faust that carries it."""

from __future__ import annotations

import asyncio
from typing import Any

from faust.types.tuples import ConsumerMessage

from rowmill.streams.core.offsets import PartitionOffsets
from rowmill.streams.ports import Note


class Delivery:
    """A record in work. Acknowledge it once what it asked for is durable, in any order.

    `topic` is the catalogue's name, without the prefix. `key` and `value` are the record's bytes;
    `timestamp_ms` is the broker's or producer's wall clock, for people. `assignment` numbers the
    assignments of this process; a record that is delivered again after a rebalance is another
    delivery with a higher number, and acknowledging the older one changes nothing.
    """

    __slots__ = (
        "_offsets",
        "assignment",
        "headers",
        "key",
        "offset",
        "partition",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes]],
        timestamp_ms: int,
        assignment: int,
        offsets: PartitionOffsets[Delivery],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.assignment = assignment
        self._offsets = offsets

    @property
    def live(self) -> bool:
        """True while its partition is owned in the assignment that it came with."""
        return not self._offsets.closed

    def ack(self) -> None:
        """Say that its work is durable: its offset may be committed. Ignored where not live."""
        self._offsets.ack(self.offset)

    def ack_after(self, durable: asyncio.Future[Any]) -> None:
        """Acknowledge once `durable` resolves; never where it fails, since the worker ends then."""
        durable.add_done_callback(self.ack_if)

    def ack_if(self, done: asyncio.Future[Any]) -> None:
        """Acknowledge where a future that is done has succeeded."""
        if not done.cancelled() and done.exception() is None:
            self.ack()

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}/{self.partition}/{self.offset} of assignment {self.assignment}>"


class NotedDelivery(Delivery):
    """A delivery whose end is in the history. Plain ones don't pay for it."""

    __slots__ = ("_note",)

    def __init__(self, note: Note, *args: Any) -> None:
        super().__init__(*args)
        self._note = note

    def ack(self) -> None:
        """As `Delivery.ack`."""
        if self._offsets.ack(self.offset):
            self._note("done", topic=self.topic, partition=self.partition, offset=self.offset)


class RoleMessage(ConsumerMessage):
    """Faust's message, which carries its delivery.

    `faust.Event` needs one, and so do the streams that acknowledge by themselves: their
    acknowledgement ends in `RoleConsumer.ack`. Faust's Cython iterator inlines that and writes to
    the consumer's list of acked offsets, unless the message says that it was acked before: so a
    message of an assignment that is over says so.
    """

    __slots__ = ("_acked", "delivery")

    delivery: Delivery

    @property
    def acked(self) -> bool:
        """True where it was acknowledged or its assignment is over."""
        return self._acked or not self.delivery.live

    @acked.setter
    def acked(self, acked: bool) -> None:
        self._acked = acked

    @classmethod
    def of(cls, tp: Any, record: Any, delivery: Delivery, generation_id: int) -> RoleMessage:
        """Wrap aiokafka's `record` of `tp`."""
        message = cls(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp / 1000.0,
            record.timestamp_type,
            record.headers,
            record.key,
            record.value,
            record.checksum,
            record.serialized_key_size,
            record.serialized_value_size,
            tp,
            generation_id=generation_id,
        )
        message.delivery = delivery
        return message
