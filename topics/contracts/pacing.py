"""The changelog of the table `pacing`: what a lane's next owner must count."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rowmill.topics.contracts.base import Contract, Count, Key

DAYS_MS_MAX = 40 * 86_400_000
"""Longer than any window or wait: what a record claims beyond it is nobody's."""

CALLS_MAX = 1_000_000

Ms = Annotated[int, Field(ge=0, le=DAYS_MS_MAX)]
Calls = Annotated[int, Field(ge=0, le=CALLS_MAX)]


class LaneEntry(Contract):
    """A lane as it was when a block of permits was reserved (key: lane), by the owner of `epoch`.

    `process`: a random id of the owner's life. `block`: the permits' id. The others: see
    `core.pacing.Carried`; `open` holds the block's permits too.
    """

    TYPE: ClassVar[str] = "rowmill.lane.entry"

    epoch: Count
    process: Key
    block: Key
    sends: Annotated[tuple[tuple[Ms, Calls], ...], Field(max_length=10_000)] = ()
    open: Calls = 0
    held_ms: Ms = 0
    wall_ms: Count = 0
