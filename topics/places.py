"""Where things live: which partition owns a receipt, and where Kafka's clients put a key."""

from __future__ import annotations

import zlib

from aiokafka.partitioner import murmur2

from rowmill.topics.contracts import LaneRecord


def partition_of(receipt: str, lane: LaneRecord) -> int:
    """Return the partition of `tool.requests`, and of the receipts' changelog, that owns a receipt.

    It follows from the recorded lane only, never from a setting, so a rerun finds every answer.
    """
    return lane.partitions[zlib.crc32(receipt.encode()) % len(lane.partitions)]


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's own clients choose for a key: murmur2, its sign bit cleared."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)
