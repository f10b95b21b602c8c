"""Progress of runs: the entries of the table `rows`, as its changelog brings them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowmill.client.owners import Owners
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.core.accounting import Counts
from rowmill.streams.core.commands import Command, runs_again
from rowmill.topics.catalogue import ROWS_CHANGELOG
from rowmill.topics.contracts import RunRecord

PROGRESS_MS = 50
"""How late progress may be: each record by itself would cost a fetch, a tenth of a run's CPU."""

MISSING_MAX = 10
"""Missing input indexes that an error names (D3)."""


class Ending(msgspec.Struct):
    """What progress needs of a `RowEntry`; msgspec skips the rest unread."""

    counts: dict[str, Any]
    index: int
    life: int
    status: str
    command: int = 0


_decode = msgspec.json.Decoder(Ending).decode


@dataclass(slots=True)
class _Tally:
    """The newest word of one partition's owner on one run."""

    epoch: int = -1
    counts: Counts = field(default_factory=Counts)


class Tallies:
    """Counts by run: of each partition the newest, of its highest owner."""

    def __init__(self) -> None:
        self._owners = Owners()
        self._runs: dict[str, dict[int, _Tally]] = {}

    def counts(self, run: str) -> Counts:
        """Return the run's counts over all partitions, as far as read."""
        return Counts.total_of(tally.counts for tally in self._runs.get(run, {}).values())

    def apply(self, record: LogRecord, only: str | None = None) -> Ending | None:
        """Take in a record of the changelog; with `only` those of one run.

        Returns: the ending that a row has now; None for a record that is no such entry, or
        that a former owner wrote after it was replaced.
        """
        if not self._owners.admit(record):
            return None
        epoch = self._owners.epoch(record.partition)
        run, slash, _row = record.key.partition("/")
        if record.value is None or not slash or (only is not None and run != only):
            return None
        try:
            entry = _decode(record.value)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None  # no entry: another record of this table
        tally = self._runs.setdefault(run, {}).setdefault(record.partition, _Tally())
        counts = Counts.from_json(entry.counts)
        # Within an epoch counts only grow: an entry that is written again brings old ones.
        if epoch > tally.epoch or counts.ended >= tally.counts.ended:
            tally.epoch, tally.counts = epoch, counts
        return entry


class Indexes:
    """A set of input indexes: a bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, index: int) -> None:
        """Put `index` (from 0) in."""
        byte, bit = divmod(index, 8)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1024 - len(self._bits)))
        self._bits[byte] |= 1 << bit

    def remove(self, index: int) -> None:
        """Take `index`, which is in, out."""
        self._bits[index // 8] &= ~(1 << index % 8)

    def __contains__(self, index: int) -> bool:
        byte, bit = divmod(index, 8)
        return byte < len(self._bits) and bool(self._bits[byte] & 1 << bit)

    def missing(self, total: int) -> list[int]:
        """Return up to ten indexes below `total` that are not in."""
        found = []
        for index in range(total):
            if index not in self:
                found.append(index)
                if len(found) == MISSING_MAX:
                    break
        return found


class Endings:
    """The rows of one run that have ended, as one command and one life of it see them.

    `retried`: rows that failed and run again under `command`, not yet done. `failed`: rows that
    failed in `life`.
    """

    def __init__(self, life: int, command: Command) -> None:
        self._life = life
        self._command = command
        self._ended = Indexes()
        self._again = Indexes()
        self.retried = 0
        self.failed = 0

    def add(self, ending: Ending) -> None:
        """Take in the newest ending of a row."""
        self._ended.add(ending.index)
        self.failed += ending.status == "failed" and ending.life == self._life
        again = runs_again(ending.status, ending.command, self._command)
        if again != (ending.index in self._again):
            (self._again.add if again else self._again.remove)(ending.index)
            self.retried += 1 if again else -1

    def missing(self, total: int) -> list[int]:
        """Return up to ten indexes below `total` that have no ending."""
        return self._ended.missing(total)


class Follower:
    """Follows one run. `changed` is set whenever a row ended; `endings`: which have.

    `from_offsets`: where the run can have begun in each partition of the changelog; None for a run
    that older lives have worked on, which is read from the beginning.
    """

    def __init__(
        self,
        settings: Settings,
        record: RunRecord,
        *,
        from_offsets: Mapping[int, int] | None = None,
    ) -> None:
        options = record.options
        self._run = record.run
        self._tallies = Tallies()
        self.endings = Endings(record.life, Command(options.force, options.command))
        self.changed = asyncio.Event()
        self.reader = LogReader(
            settings,
            ROWS_CHANGELOG,
            self._apply,
            from_offsets=from_offsets,
            gather_ms=PROGRESS_MS,
        )

    async def start(self) -> None:
        """Read to the changelog's end, then follow. Raises: LogUnreadable."""
        await self.reader.start()
        await self.reader.caught_up()

    async def stop(self) -> None:
        """Stop following."""
        await self.reader.stop()

    def counts(self) -> Counts:
        """Return the run's counts over all partitions, as far as read."""
        return self._tallies.counts(self._run)

    def _apply(self, record: LogRecord) -> None:
        ending = self._tallies.apply(record, self._run)
        if ending is not None:
            self.endings.add(ending)
            self.changed.set()
