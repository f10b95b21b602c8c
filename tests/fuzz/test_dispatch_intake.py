"""Whatever comes on `tool.requests` is answered, waits, or is set aside; the next ask is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given

from rowmill.streams.core.outcomes import Answered
from rowmill.topics import codec
from rowmill.topics.contracts import ReceiptEntry, RunRecord
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import changed_wire
from tests.fuzz.records import ASK, ENTRIES, KEY, REQUESTS, RUN, plain
from tests.fuzz.strict_engine import PARTITIONS, Loop, StrictApp, StrictTable, set_aside
from tests.kit.fake_engine import FakeDelivery, settle
from tests.unit.streams.dispatch import role as dispatch

GOOD = ASK.model_copy(update={"run": "good", "row": "good", "receipt": "good", "call": "c/good"})
STATES = [None, *(codec.encode(entry) for entry in ENTRIES)]
"""What the table may hold of the receipt that the bad record is about."""


class Desk:
    """The dispatch role on the strict engine; its provider answers at once."""

    def __init__(self, stored: bytes | None) -> None:
        self.app = StrictApp()
        self.role = dispatch.Role(table=StrictTable(self.app), app=self.app)
        if stored is not None:
            self.role.table.entries[0][KEY] = stored
        self.role.provider.answer = lambda number: Answered({"n": number}, 7, 1.0)
        self.tell_run(RUN.model_copy(update={"run": "good"}))

    def tell_run(self, record: RunRecord) -> None:
        """Let the role know a run, as its reader of `runs` does."""
        self.tell(record.run, codec.encode(record))

    def tell(self, run: str, value: bytes) -> None:
        """Let the role read any bytes of the topic `runs`."""
        held = self.role.runs.apply(run, value, 0)
        if held is not None:
            self.role.requests.run_changed(held)

    def offer(self, value: bytes, offset: int) -> FakeDelivery:
        """Hand a record over."""
        delivery = FakeDelivery(value, offset=offset, topic="tool.requests")
        self.role.requests.offer(delivery)  # type: ignore[arg-type]  # the fake has what is used
        return delivery

    def waits(self, delivery: FakeDelivery) -> bool:
        """Whether the role knows what that record waits for."""
        known: Any = delivery
        role = self.role
        settling = bool(role.claims._settling)
        return role.claims.waits(known) or role.requests.holds(known) or settling

    def check_good(self, good: FakeDelivery) -> None:
        """The next good ask got its answer."""
        assert not self.app.failures, self.app.failures
        assert good.acked
        assert any(result.row == "good" for result in self.app.produced["provider.results"])
        for _, value in self.role.table.writes:
            codec.decode(ReceiptEntry, value)


async def take_in(values: Sequence[bytes], stored: bytes | None) -> None:
    """Offer bad records, then a good one."""
    desk = Desk(stored)
    desk.tell_run(RUN)
    bad = [desk.offer(value, offset) for offset, value in enumerate(values)]
    good = desk.offer(codec.encode(GOOD), len(values))
    for _ in range(6):
        await settle()
        if good.acked and all(one.acked for one in bad):
            break
        await asyncio.sleep(0.0005)
    for one in bad:
        assert one.acked or desk.waits(one), "neither acknowledged, nor known to wait"
        assert one.acked or not set_aside(desk.app, one)
    desk.check_good(good)


@fuzzed
@given(several(changed_wire([plain(record) for record in REQUESTS])))
def test_any_record_is_taken_in_or_set_aside(
    loop: Loop, drawn: Sequence[tuple[int, bytes]]
) -> None:
    values = [value for _, value in drawn]
    stored = STATES[len(values[0]) % len(STATES)]
    bounded(lambda: loop.run(lambda: take_in(values, stored)))


async def ask_of(values: Sequence[bytes]) -> None:
    """Let the role read any runs, and ask of what they made of it."""
    desk = Desk(None)
    for offset, value in enumerate(values):
        desk.tell("run", value)
        asked = desk.offer(codec.encode(ASK), offset)
        await settle(2)
    good = desk.offer(codec.encode(GOOD), 8)
    for _ in range(6):
        await settle()
        if asked.acked and good.acked:
            break
        await asyncio.sleep(0.0005)
    assert asked.acked or desk.waits(asked)
    desk.check_good(good)


@fuzzed
@given(several(changed_wire([plain(RUN)])))
def test_an_ask_of_an_odd_run_is_answered_or_waits(
    loop: Loop, drawn: Sequence[tuple[int, bytes]]
) -> None:
    bounded(lambda: loop.run(lambda: ask_of([value for _, value in drawn])))


def test_the_samples_ask_for_partitions_that_there_are() -> None:
    assert ASK.reply_partition < PARTITIONS
