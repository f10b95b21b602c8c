"""Receipts under two or more owners: whatever dies, freezes or comes late, nothing is paid twice.

The transitions are those of `streams/core/receipts.py`; around them `claims.py` and `caller.py` go
step by step as the modules of the same names in `streams/dispatch` do, and `broker.py` and
`ledger.py` check each step: a completed receipt stands, a send is repeated only after it failed for
now, its process died or its lease was lost, under one key; no blind second send; a claim opens what
R2 says and knows all that rows were told. Hypothesis chooses the steps; at the end all are healed,
and every question must be answered.

The long form, some seven minutes, by hand:

    ROWMILL_TEST_LONG=1 pytest tests/property/receipts --timeout 3600
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from rowmill.streams.core.commands import Force
from rowmill.streams.core.receipts import IllegalTransition, Receipt
from tests.property.receipts.caller import Answer
from tests.property.receipts.illegal import illegal_from
from tests.property.receipts.ledger import LEASE_MS
from tests.property.receipts.small_steps import ANSWER, FORCE, KEYS, NUMBER, SmallSteps
from tests.property.receipts.world import SESSION_MS

LONG = os.environ.get("ROWMILL_TEST_LONG") == "1"
EXAMPLES = 10_000 if LONG else 120
STEPS = 80 if LONG else 70

TROUBLES = st.sampled_from(["none", "freeze", "cut", "kill"])
LEASE_OVER_MS = round(LEASE_MS * 1.1)
"""After this long it is over on every clock."""

WAITS = st.sampled_from([0, 9_000, LEASE_OVER_MS, 2 * LEASE_MS])


class Receipts(SmallSteps):
    """Steps in any order."""

    @rule(
        how=TROUBLES, waits=st.tuples(WAITS, WAITS), answers=st.tuples(*[st.none() | ANSWER] * 2),
        flush=st.booleans(), calm=st.booleans(), forced=FORCE,
    )  # fmt: skip
    def change_owner(
        self,
        how: str,
        waits: tuple[int, int],
        answers: tuple[Answer | None, Answer | None],
        flush: bool,
        calm: bool,
        forced: tuple[Force | None, str | None],
    ) -> None:
        """The owner gets into trouble, the next one takes over; each hears an answer meanwhile.

        `calm`: what lies there is read before, so that a healed worker's words are the owner's.
        At the end the former one is healed: what it says may be of a purchase before `forced`.
        """
        world = self.world
        former = world.present or world.workers[0]
        following = world.workers[(world.workers.index(former) + 1) % len(world.workers)]
        self.heal(following)
        if calm:
            self.go_on()
        self.trouble(former, how)
        self.hear_all(former, answers[0])
        world.pass_time(waits[0])
        world.assign(following, flush=flush)
        self.go_on()
        world.pass_time(waits[1])
        self.go_on()
        self.hear_all(following, answers[1])
        self.go_on()
        self.ask_again("k1", 2, forced)
        self.go_on()
        self.heal(former)
        self.go_on()

    @rule(key=KEYS, row=st.integers(0, 3), times=st.integers(1, 4))
    def die_again(self, key: str, row: int, times: int) -> None:
        """The owner dies over what it sent, and over what it sends once it lives again."""
        self.ask_again(key, row, (None, None))
        for _ in range(times):
            owner = self.world.present or self.world.workers[0]
            self.heal(owner)
            self.go_on()
            self.world.kill(owner)
            self.world.restart(owner)
            self.go_on()

    @rule(
        late=ANSWER, early=st.none() | ANSWER, last=st.none() | ANSWER, forced=FORCE,
        wait_ms=WAITS, beats=st.booleans(),
    )  # fmt: skip
    def come_back(
        self,
        late: Answer,
        early: Answer | None,
        last: Answer | None,
        forced: tuple[Force | None, str | None],
        wait_ms: int,
        beats: bool,
    ) -> None:
        """An owner that was cut off with an answer comes back, and hands it to itself.

        `late`: what it heard. `early`: what its successor hears before it is back, where the row may
        ask anew then. `last`: what that one hears when it is the owner again.
        """
        world = self.world
        former = world.present or world.workers[0]
        following = world.workers[(world.workers.index(former) + 1) % len(world.workers)]
        for worker in (former, following):
            self.heal(worker)
            self.go_on()
        self.ask_again("k1", 1, forced)
        self.go_on()
        self.trouble(former, "cut")
        self.hear_all(former, late)
        world.pass_time(SESSION_MS)
        world.assign(following, flush=True)
        self.go_on()
        world.pass_time(LEASE_OVER_MS)
        self.go_on()
        self.hear_all(following, early)
        self.go_on()
        self.ask_again("k1", 2, forced)
        self.go_on()
        self.heal(former)
        world.assign(former, flush=True)
        self.go_on()
        world.pass_time(wait_ms)
        world.assign(following, flush=True)
        for call in following.caller.sent if beats else ():
            following.caller.beat(call)
        self.go_on()
        self.hear_all(following, last)

    @rule(number=NUMBER)
    def break_the_rules(self, number: int) -> None:
        """No transition is made from a state, or under a lease, that is not its own."""
        found = [call for worker in self.world.workers for call in worker.claims.open.values()]
        receipt = found[number % len(found)].receipt if found else Receipt("k", "t", "p")
        for illegal in illegal_from(receipt):
            with pytest.raises(IllegalTransition):
                illegal()

    def teardown(self) -> None:
        """Heal all, and let it come to rest."""
        if not hasattr(self, "world"):
            return
        for worker in self.world.workers:
            self.heal(worker)
        self.world.pass_time(SESSION_MS + LEASE_MS)
        self.world.assign(self.world.workers[0], flush=True)
        for _ in range(100):
            if self.world.broker.watermark == len(self.world.broker.words):
                return
            self.go_on()
            self.world.pass_time(5_000)
            for worker in self.world.workers:
                self.hear_all(worker, "ok")
        raise AssertionError("a question was never answered")


TestReceipts = pytest.mark.behaviour("R6")(Receipts.TestCase)
TestReceipts.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
