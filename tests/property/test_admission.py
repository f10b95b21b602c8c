"""Admission under any order of events: bounded, fair, nothing lost."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from rowmill.streams.core.admission import Admission, RunLife

ROW_MAX = 5
RUNS: list[RunLife] = [("a", 1), ("b", 1), ("b", 2)]


class AdmissionMachine(RuleBasedStateMachine):
    """Rows of three runs come, get slots, end and are dropped, against a plain model."""

    opened = Bundle("opened")

    def __init__(self) -> None:
        super().__init__()
        self.admission: Admission[int] = Admission(ROW_MAX, read_ahead_bytes=100)
        self.waiting: dict[RunLife, list[int]] = {run: [] for run in RUNS}
        self.open: dict[RunLife, int] = dict.fromkeys(RUNS, 0)
        self.slots: dict[RunLife, int] = dict.fromkeys(RUNS, 0)
        self.number = 0

    @rule(run=st.sampled_from(RUNS))
    def offer(self, run: RunLife) -> None:
        self.number += 1
        self.waiting[run].append(self.number)
        self.admission.offer(run, self.number, size_bytes=10)

    @rule(run=st.sampled_from(RUNS), slots=st.integers(0, 4))
    def give_slots(self, run: RunLife, slots: int) -> None:
        self.slots[run] = slots
        self.admission.give_slots(run, slots)

    @rule()
    def admit(self) -> None:
        free = [run for run in RUNS if self.waiting[run] and self.open[run] < self.slots[run]]
        found = self.admission.next()
        if found is None:
            assert not free or sum(self.open.values()) >= ROW_MAX
            return
        run, row = found
        assert run in free
        assert row == self.waiting[run].pop(0), "rows of one run keep their order"
        self.open[run] += 1

    @rule(run=st.sampled_from(RUNS))
    def end(self, run: RunLife) -> None:
        if self.open[run]:
            self.open[run] -= 1
            self.admission.ended(run)

    @rule(run=st.sampled_from(RUNS))
    def drop(self, run: RunLife) -> None:
        gone = self.admission.drop(lambda key, _: key == run)
        assert gone == self.waiting[run]
        self.waiting[run] = []

    @invariant()
    def bounds_hold(self) -> None:
        assert self.admission.open == sum(self.open.values()) <= ROW_MAX
        assert self.admission.waiting == sum(map(len, self.waiting.values()))
        assert self.admission.waiting_bytes == 10 * self.admission.waiting
        assert self.admission.full == (self.admission.waiting_bytes >= 100)


TestAdmission = AdmissionMachine.TestCase


def test_a_long_run_does_not_starve_a_short_one() -> None:
    admission: Admission[int] = Admission(row_max=4, read_ahead_bytes=1 << 20)
    long, short = ("long", 1), ("short", 1)
    for row in range(1_000):
        admission.offer(long, row, 1)
    for row in range(10):
        admission.offer(short, row, 1)
    admission.give_slots(long, 4)
    admission.give_slots(short, 4)
    order = []
    while (found := admission.next()) is not None:
        order.append(found[0])
        admission.ended(found[0])
        if order.count(short) == 10:
            break
    assert len(order) <= 20, "each run gets every second slot"
