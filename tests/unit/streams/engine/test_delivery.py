from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition
from faust.types import TP

from rowmill.streams.core.offsets import PartitionOffsets
from rowmill.streams.engine.commit import SLICE, _in_turns
from rowmill.streams.engine.delivery import Delivery, RoleMessage


def deliver(offset: int, offsets: PartitionOffsets[Delivery]) -> Delivery:
    delivery = Delivery("rows.input", 0, offset, b"k", b"v", [], 0, 1, offsets)
    offsets.deliver(offset, delivery)
    return delivery


def message_of(delivery: Delivery) -> RoleMessage:
    record: Any = SimpleNamespace(
        topic="rows.input",
        partition=0,
        offset=delivery.offset,
        timestamp=0,
        timestamp_type=0,
        headers=(),
        key=b"k",
        value=b"v",
        checksum=None,
        serialized_key_size=1,
        serialized_value_size=1,
    )
    return RoleMessage.of(TP("rows.input", 0), record, delivery, 1)


def test_an_acknowledgement_after_the_assignment_is_over_changes_nothing() -> None:
    offsets: PartitionOffsets[Delivery] = PartitionOffsets(0)
    first, second = deliver(0, offsets), deliver(1, offsets)
    assert first.live
    first.ack()
    first.ack()
    assert offsets.committable() == 1
    offsets.close()
    second.ack()
    assert not second.live
    assert len(offsets) == 0


def test_a_message_of_an_assignment_that_is_over_says_it_was_acknowledged() -> None:
    """Faust's Cython iterator asks nothing else before it writes to the acked list."""
    offsets: PartitionOffsets[Delivery] = PartitionOffsets(0)
    message = message_of(deliver(0, offsets))
    assert not message.acked
    offsets.close()
    assert message.acked


def test_fetched_partitions_have_turns() -> None:
    """16,000 records of one partition don't hold up the others."""
    records = {TopicPartition("a", 0): list(range(3 * SLICE)), TopicPartition("b", 0): [1, 2]}
    turns = [(tp.topic, len(some)) for tp, some in _in_turns(records)]
    assert turns == [("a", SLICE), ("b", 2), ("a", SLICE), ("a", SLICE)]
