"""Where a receipt lives: which partition of `tool.requests` owns it."""

from __future__ import annotations

import zlib

from rowmill.topics.contracts import LaneRecord


def partition_of(receipt: str, lane: LaneRecord) -> int:
    """Return the partition of `tool.requests`, and of the receipts' changelog, that owns a receipt.

    It follows from the recorded lane only, never from a setting, so a rerun finds every answer.
    """
    return lane.partitions[zlib.crc32(receipt.encode()) % len(lane.partitions)]
