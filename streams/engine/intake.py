"""From fetched records to the agents' queues: one synchronous step a record.

One consumer feeds all agents of an app. Faust puts records into bounded queues and waits where one
is full, and then every topic of the app waits: 10,000 rows that wait for a slot stopped the results
that would have freed the slots, for good. Here nothing waits: a topic whose queue grows long stops
being *fetched*, and the role pauses partitions by itself (`RoleApp.pause`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSet, Sequence
from functools import partial
from typing import Any, cast

from faust import Event
from faust.transport.conductor import Conductor
from faust.types import TP

from rowmill.streams.core.offsets import PartitionOffsets
from rowmill.streams.engine.delivery import Delivery, NotedDelivery, RoleMessage
from rowmill.streams.ports import silent

QUEUE_LONG = 10_000
"""Events in one topic's queue at which the topic is not fetched any more, until half are taken."""

Deliver = Callable[[Sequence[Any], PartitionOffsets[Delivery], int], None]
"""(aiokafka's records, the partition's tracker, number of the assignment)."""


class Intake(Conductor):
    """Faust's conductor, with a delivery that completes at once.

    Faust's takes a lock, three awaits and a codec a record, and the drain loop wraps each in
    `wait_first` (two tasks and two futures). Records are bytes here: roles decode them, and send
    what they can't read to the dead letter; a decode error in Faust acknowledges the record.
    """

    def deliver_to(self, tp: TP) -> Deliver | None:
        """Return what delivers records of `tp`, None where no agent reads its topic."""
        return cast("Deliver | None", self._tp_to_callback.get(tp))

    def queue_length(self, tp: TP) -> int:
        """How many events of the topic of `tp` no agent has taken yet."""
        return max((channel.queue.qsize() for channel in self._channels(tp)), default=0)

    def clear_queues(self) -> None:
        """Drop all events that no agent has taken: their assignment is over."""
        for topic in self._topics:
            cast(Any, topic).queue.clear()

    def _channels(self, tp: TP) -> Iterable[Any]:
        return cast("Iterable[Any]", self._tp_index.get(tp, ()))

    def _build_handler(self, tp: TP, channels: MutableSet[Any]) -> Any:
        app: Any = self.app
        queues = [channel.queue for channel in channels]
        references = len(queues)
        topic, partition = app.plain_name(tp.topic), tp.partition
        delivery_of: Callable[..., Delivery] = Delivery
        if app.note is not silent:
            delivery_of = partial(NotedDelivery, app.note)

        def deliver(
            records: Sequence[Any], offsets: PartitionOffsets[Delivery], assignment: int
        ) -> None:
            generation = app.consumer_generation_id
            for record in records:
                delivery = delivery_of(
                    topic,
                    partition,
                    record.offset,
                    record.key,
                    record.value,
                    list(record.headers),
                    record.timestamp,
                    assignment,
                    offsets,
                )
                message = RoleMessage.of(tp, record, delivery, generation)
                message.refcount = references
                offsets.deliver(record.offset, delivery)
                event = Event(app, record.key, record.value, delivery.headers, message)
                for queue in queues:
                    queue.force_put_nowait(event)

        return deliver
