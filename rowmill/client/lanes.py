"""Record where the receipts of a run's tools live, before the first of them is asked."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from rowmill.client.viewed_log import ViewedLog
from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.topics.contracts import LaneRecord
from rowmill.topics.views import LanesView


def lane_for(tool: ToolSpec, provider: ProviderSpec, partitions: int) -> LaneRecord:
    """Return where a tool's receipts live when it is used for the first time.

    A provider with limits has one lane on one partition, so that one worker counts its calls; a
    tool of one without has a lane of its own on all `partitions` (>= 1).
    """
    if provider.limits:
        place = zlib.crc32(provider.id.encode()) % partitions
        return LaneRecord(tool=tool.id, lane=provider.id, partitions=[place])
    return LaneRecord(tool=tool.id, lane=f"tool:{tool.id}", partitions=list(range(partitions)))


def limited_later(
    lanes: LanesView, tools: Iterable[ToolSpec], providers: Mapping[str, ProviderSpec]
) -> list[str]:
    """Return tools whose receipts lie in several partitions although their provider has limits now.

    Their lane has an owner in each worker that has one of them, and each keeps the limits by itself.
    """
    found = []
    for tool in tools:
        lane = lanes.get(tool.id)
        if lane is not None and len(lane.partitions) > 1 and providers[tool.provider].limits:
            found.append(tool.id)
    return found


async def ensure_lanes(
    lanes: ViewedLog[LanesView],
    tools: Iterable[ToolSpec],
    providers: Mapping[str, ProviderSpec],
    partitions: int,
) -> None:
    """Write a record for every tool that has none. Raises: LogUnwritable, LogUnreadable.

    Where a tool's receipts live is data: a record that stands is never changed here, whatever the
    tool's limits are now.
    """
    await lanes.read_on()
    for tool in tools:
        if lanes.view.get(tool.id) is not None:
            continue
        ours = lane_for(tool, providers[tool.provider], partitions)
        await lanes.write(tool.id, ours, source=f"rowmill/tool/{tool.id}")
        await lanes.read_on()
        first = lanes.view.get(tool.id)
        if first is not None and first != ours:
            # Another main was faster. Compaction keeps the last record of a key, so the last must
            # say what the first said.
            await lanes.write(tool.id, first, source=f"rowmill/tool/{tool.id}")
