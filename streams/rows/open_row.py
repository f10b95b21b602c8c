"""A row that holds a slot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rowmill.streams.engine.delivery import Delivery
from rowmill.topics.contracts import RunRecord


@dataclass(slots=True, eq=False)
class OpenRow:
    """A row that holds a slot. `deliveries`: its record, and redelivered copies of it."""

    run: RunRecord
    life: int
    row: str
    index: int
    partition: int
    deliveries: list[Delivery] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    closed: bool = False
