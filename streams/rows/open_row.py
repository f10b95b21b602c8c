"""A row that holds a slot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rowmill.streams.core.commands import Command
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.rows.intake import Waiting
from rowmill.topics.contracts import RunRecord


@dataclass(slots=True, eq=False)
class OpenRow:
    """A row whose ending is not durable yet. `deliveries`: its record, and redelivered copies of it.

    `again`: it failed under an older command of the run, and runs once more. `later`: copies that a
    newer command fed while this one was open; they are judged once it has ended. `retained`: its
    columns are done and its slot is another's; it is kept until its ending is durable (M1).
    """

    run: RunRecord
    life: int
    row: str
    index: int
    partition: int
    epoch: int
    deliveries: list[Delivery] = field(default_factory=list)
    again: bool = False
    later: list[Waiting] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    closed: bool = False
    retained: bool = False

    @property
    def where(self) -> str:
        """Its path, for errors (R9)."""
        return f'dataset("{self.run.dataset}").row("{self.row}")'

    @property
    def command(self) -> Command:
        """The command of the run that it was opened under."""
        return command_of(self.run)


def command_of(run: RunRecord) -> Command:
    """Return the command that drives a run now."""
    return Command(run.options.force, run.options.command)
