"""Which records of a changelog count: those that came before a higher epoch began."""

from __future__ import annotations

from rowmill.streams.adapters.log_reader import LogRecord
from rowmill.topics.codec import header


class Owners:
    """The present owner's epoch of each partition, as a changelog is read in order.

    What a former owner wrote after its successor's epoch began counts for nobody (`engine/recovery.py`).
    """

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}

    def admit(self, record: LogRecord) -> bool:
        """Say whether a record counts and is an entry: one that begins an epoch is none."""
        epoch = int(header(record.headers, "rowmill_epoch") or 0)
        if epoch < self._epochs.get(record.partition, 0):
            return False
        self._epochs[record.partition] = epoch
        return not record.key.startswith("!")

    def epoch(self, partition: int) -> int:
        """Return the epoch of the partition's last record that counted."""
        return self._epochs.get(partition, 0)
