"""Where the receipts of a tool live, and what a user must know of it."""

from __future__ import annotations

from rowmill.client.lanes import lane_for, limited_later
from rowmill.plays.specs import ProviderSpec, Rate, ToolSpec
from rowmill.topics.codec import encode
from rowmill.topics.views import LanesView

FREE = ProviderSpec(id="p", base_url="http://p.test")
PACED = FREE.model_copy(update={"limits": (Rate(calls=10, per_s=1),)})
TOOL = ToolSpec(id="p.ask", provider="p", path="/ask")


def first_used(provider: ProviderSpec, partitions: int = 4) -> LanesView:
    lanes = LanesView(partitions)
    lanes.apply(TOOL.id, encode(lane_for(TOOL, provider, partitions)), 0)
    return lanes


def test_a_lane_with_limits_lives_in_one_partition_and_one_without_in_all() -> None:
    assert len(lane_for(TOOL, PACED, 4).partitions) == 1
    assert lane_for(TOOL, FREE, 4).partitions == [0, 1, 2, 3]


def test_a_tool_that_got_limits_after_its_first_use_is_named() -> None:
    assert limited_later(first_used(FREE), [TOOL], {"p": PACED}) == [TOOL.id]


def test_others_are_not() -> None:
    assert limited_later(first_used(PACED), [TOOL], {"p": PACED}) == []
    assert limited_later(first_used(PACED), [TOOL], {"p": FREE}) == []
    assert limited_later(first_used(FREE), [TOOL], {"p": FREE}) == []
    assert limited_later(first_used(FREE, 1), [TOOL], {"p": PACED}) == []
    assert limited_later(LanesView(4), [TOOL], {"p": PACED}) == []
