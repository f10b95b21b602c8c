"""After taking over from another instance: read the changelog back for a while (point 3).

What a cut-off former owner still had in its producer or socket arrives after its successor's epoch has
begun (KAFKA-12693). Recovery refuses it by its epoch, as long as the beginning of the successor's is
there; but compaction keeps only the last record of a key. So the new owner follows its changelogs and
writes again what a late record covered, be it nothing: then its own is the last.
`min.compaction.lag.ms` of 24 h gives it the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition

from rowmill.streams.engine.recovery import epoch_of, key_of
from rowmill.streams.engine.tables import EPOCH_KEY, DurableTable
from rowmill.streams.tasks import closed

log = structlog.get_logger(__name__)

READ_BACK_MS = 900_000
"""15 minutes: far longer than a broker or a socket keeps a record on its way (`delivery` of 2 min)."""


class ReadBack:
    """Follows the changelogs of partitions that were taken over from another instance."""

    def __init__(
        self,
        client_options: Mapping[str, Any],
        tables: Mapping[str, DurableTable],
        begin: Mapping[TopicPartition, int],
    ) -> None:
        """`tables` by changelog topic; `begin`: the end of each changelog at the takeover."""
        self._options = client_options
        self._tables = tables
        self._begin = begin
        self._newest: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Follow until cancelled. Raises: StoreFailed, DeliveryFailed, aiokafka's KafkaError."""
        reader = AIOKafkaConsumer(
            group_id=None, enable_auto_commit=False, auto_offset_reset="earliest", **self._options
        )
        await reader.start()
        try:
            reader.assign(list(self._begin))
            for tp, offset in self._begin.items():
                reader.seek(tp, offset)
            while True:
                fetched = await reader.getmany(timeout_ms=1_000)
                for tp, records in fetched.items():
                    for record in records:
                        self._look_at(tp, record)
        finally:
            await closed(reader.stop())

    def _look_at(self, tp: TopicPartition, record: Any) -> None:
        """Cover a record that came after one of a higher epoch; records of our own former epochs,
        which lie there too, did not."""
        table = self._tables[tp.topic]
        key = key_of(record.key)
        epoch = epoch_of(record.headers)
        newest = self._newest[tp] = max(epoch, self._newest.get(tp, 0))
        if key is None or key == EPOCH_KEY or epoch >= newest:
            return
        table.write_again(tp.partition, key)
        log.warning(
            "late_record_covered",
            table=table.name,
            partition=tp.partition,
            key=key,
            offset=record.offset,
            epoch=epoch,
        )
