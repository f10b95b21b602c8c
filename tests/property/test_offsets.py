from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rowmill.streams.core.offsets import PartitionOffsets


@given(acks=st.permutations(range(20)), cut=st.integers(0, 20))
def test_a_commit_never_passes_an_open_offset(acks: list[int], cut: int) -> None:
    offsets: PartitionOffsets[int] = PartitionOffsets(0)
    for offset in range(20):
        offsets.deliver(offset, offset)
    for offset in acks[:cut]:
        offsets.ack(offset)
    assert offsets.committable() == min(acks[cut:], default=20)


class Partition(RuleBasedStateMachine):
    """Deliveries with gaps, acknowledgements in any order, looks in between: against a plain set."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: PartitionOffsets[int] = PartitionOffsets(0)
        self.open: set[int] = set()
        self.next = 0
        self.committed = 0

    @rule(gap=st.integers(0, 3))
    def deliver(self, gap: int) -> None:
        self.next += gap
        self.offsets.deliver(self.next, self.next)
        self.open.add(self.next)
        self.next += 1

    @precondition(lambda self: self.open)
    @rule(choice=st.randoms(use_true_random=False))
    def ack(self, choice: object) -> None:
        offset = choice.choice(sorted(self.open))  # type: ignore[attr-defined]
        assert self.offsets.ack(offset)
        self.open.discard(offset)

    @rule(offset=st.integers(0, 40))
    def ack_anything(self, offset: int) -> None:
        assert self.offsets.ack(offset) == (offset in self.open)
        self.open.discard(offset)

    @invariant()
    def commits_the_first_open_offset_and_never_falls(self) -> None:
        assert len(self.offsets) == len(self.open)
        committable = self.offsets.committable()
        assert committable == (min(self.open) if self.open else self.next)
        assert committable >= self.committed
        self.committed = committable
        assert self.offsets.head() == min(self.open, default=None)


TestPartition = Partition.TestCase
