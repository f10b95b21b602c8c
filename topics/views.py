"""Pure folds over `runs` and `lanes`: which record holds. Every process sees the same, since both
topics have one partition and the log's order decides.

Undecodable records are skipped here: whoever reads the topic for good dead-letters them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rowmill.topics.codec import UndecodableRecord, decode
from rowmill.topics.contracts import LaneRecord, RunRecord


@dataclass(slots=True)
class _Run:
    number: int
    claim_offset: int
    record: RunRecord


class RunsView:
    """What each run is: the newest record of its highest life, of that life's first claim.

    Two mains that claim the same life write different claims; the one whose record came first in
    the log has it, whatever the other writes later. Records of a lower life are a dead main's.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def apply(self, key: str, value: bytes | None, offset: int) -> RunRecord | None:
        """Fold one record in. `offset` >= 0: where it stands in the log.

        Returns: the record as it now holds, its `number` filled in; None where it was refused
        (another claim, a lower life, another run's key), can't be read or was a tombstone, which forgets the run.
        """
        if value is None:
            self._runs.pop(key, None)
            return None
        try:
            record = decode(RunRecord, value)
        except UndecodableRecord:
            return None
        if record.run != key:
            return None  # of another run: whoever looks for it by its own id would not find it
        known = self._runs.get(key)
        if known is None:
            number = record.number if record.number >= 0 else offset
            known = _Run(number, offset, record)
            self._runs[key] = known
        elif record.life > known.record.life:
            known.claim_offset = offset
        elif record.life < known.record.life or record.claim != known.record.claim:
            return None
        known.record = record.model_copy(update={"number": known.number})
        return known.record

    def get(self, run: str) -> RunRecord | None:
        """Return the record that holds, None where the run is not known."""
        known = self._runs.get(run)
        return known.record if known else None

    def claim_offset(self, run: str) -> int | None:
        """Return the offset of the record that won the run's present life."""
        known = self._runs.get(run)
        return known.claim_offset if known else None

    def all(self) -> Iterable[RunRecord]:
        """Return all runs, oldest first."""
        runs = sorted(self._runs.values(), key=lambda known: known.number)
        return [known.record for known in runs]


class LanesView:
    """Where each tool's receipts live: the first record of the highest version holds.

    `partitions`: of `tool.requests`; a record that names another one is none of a lane.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._lanes: dict[str, LaneRecord] = {}

    def apply(self, key: str, value: bytes | None, offset: int) -> LaneRecord | None:
        """Fold one record in. Returns: the record if it now holds, None where it was refused.

        A tombstone changes nothing: where receipts live is never forgotten.
        """
        del offset  # the order of the calls is the order of the log
        if value is None:
            return None
        try:
            record = decode(LaneRecord, value)
        except UndecodableRecord:
            return None
        if record.tool != key or max(record.partitions) >= self._partitions:
            return None
        known = self._lanes.get(key)
        if known is not None and record.version <= known.version:
            return None
        self._lanes[key] = record
        return record

    def get(self, tool: str) -> LaneRecord | None:
        """Return the record that holds, None where the tool was never used."""
        return self._lanes.get(tool)
