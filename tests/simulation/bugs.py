"""The bugs that the simulation is tried with: one or more for each promise that it can break."""

from __future__ import annotations

from rowmill.streams.core import pacing, receipts
from rowmill.streams.core.offsets import PartitionOffsets
from rowmill.streams.dispatch import caller, notes
from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.caller import Caller
from rowmill.streams.dispatch.calls import OpenCall
from rowmill.streams.dispatch.claims import Claims
from rowmill.streams.dispatch.lanes import Departure, Lane
from rowmill.streams.dispatch.owner import Ownership
from rowmill.streams.dispatch.permits import Permits
from rowmill.streams.dispatch.takeovers import Takeovers
from tests.simulation import app
from tests.simulation.teeth import Bug, Change

of = Change.of

PAYING = (
    Bug(
        "a takeover opens another purchase",
        ("INV7",),
        of(
            receipts,
            "take_over",
            ("replace(receipt, lease", 'replace(receipt, purchase="p", lease'),
        ),
    ),
    Bug(
        "a purchase may end any number of senders",
        ("INV7",),
        of(receipts, "take_over", ("died.deaths >= SENDS_ENDED_BY_DEATH_MAX", "False")),
    ),
    Bug(
        "an answer that came to a former owner is dropped",
        ("INV7",),
        of(
            Caller,
            "_send_to_owner",
            ("await self._mail.settle(call.partition, each, lease.id)", "pass"),
        ),
    ),
    Bug(
        "an owner ignores what a former one hands over",
        ("INV7",),
        of(receipts, "settle_late", ("if not open_to_answers:", "if True:")),
    ),
    Bug(
        "a takeover does not read first what its former owner handed over",
        ("INV7",),
        of(
            Takeovers,
            "_outlast",
            ("await self._mail.read_past(call.partition, self._new_id())", "pass"),
        ),
    ),
    Bug(
        "a call that is connecting does not hear that its answer has come",
        ("INV7",),
        of(Caller, "_leaves", ("or not self._claims.goes_on(call)", "")),
    ),
    Bug(
        "a failed call opens no purchase of its own but the next key is the receipt's",
        ("INV9",),
        of(caller, "idempotency_key", ("receipt, purchase]", "receipt]")),
        of(notes, "idempotency_key", ("receipt, purchase]", "receipt]")),
    ),
    Bug(
        "a tool without idempotency is tried again",
        ("INV10",),
        of(caller, "policy_of", ("idempotent=call.tool.idempotent", "idempotent=True")),
    ),
    Bug(
        "a tool without idempotency is taken over",
        ("INV10",),
        of(receipts, "take_over", ("if not idempotent:", "if False:")),
    ),
    Bug(
        "keys live for ever",
        ("INV11",),
        of(OpenCall, "key_is_old", ("return sent and", "return False and")),
        of(caller, "policy_of", ("round(call.tool.key_lifetime_s * 1000)", "10**12")),
        of(receipts, "take_over", ("age_ms >= usable_key_ms(key_lifetime_ms)", "False")),
    ),
)

ASKING = (
    Bug(
        "a forced ask is answered with what is there",
        ("R2",),
        of(
            receipts,
            "_answers",
            ('if ask.force == "all":', "if False:"),
            ("return not _asked_again(receipt, ask)", "return True"),
        ),
    ),
    Bug(
        "a forced ask joins the call that is open",
        ("R2",),
        of(receipts, "joins", ("return ask.force", "return True or ask.force")),
    ),
    Bug(
        "a receipt forgets which commands it served",
        ("R2",),
        of(receipts, "_opened", ("[-TOKENS_KEPT:]", "[-TOKENS_KEPT:][:0]")),
    ),
    Bug(
        "a late answer overwrites a completed receipt",
        ("R6",),
        of(
            receipts,
            "settle_late",
            ("if not open_to_answers:", "if False:"),
            ("output=settled.output", 'output="another"'),
        ),
    ),
    Bug(
        "a former owner's late failure ends a call that is sent again",
        ("R6",),
        of(
            receipts,
            "settle_late",
            ('(receipt.state == "running" and same_lease)', "receipt.purchase"),
        ),
    ),
    Bug(
        "a receipt that is parked keeps its lease",
        ("R3",),
        of(receipts, "park", ("lease=None", "lease=receipt.lease")),
    ),
)

PACING = (
    Bug(
        "a window is half as long",
        ("INV12",),
        of(pacing.Window, "earliest_ms", ("+ self.per_ms +", "+ self.per_ms // 2 +")),
        of(pacing.Window, "door_ms", ("+ self.per_ms +", "+ self.per_ms // 2 +")),
    ),
    Bug(
        "calls leave whenever their lease is written, not as their window allows",
        ("INV12",),
        of(pacing.Window, "door_ms", ("if free < 1:", "return 0\n    if free < 1:")),
    ),
    Bug(
        "a wait does not hold its lane",
        ("INV13",),
        of(pacing.Pacer, "earliest_ms", ("self._held_until_ms,", "")),
        of(pacing.Pacer, "door_ms", ("max(now_ms, self._held_until_ms)", "now_ms")),
        of(Departure, "leave", ("if self._pacer.held_until_ms > now_ms:", "if False:")),
    ),
    Bug(
        "a call that is connecting does not hear of a wait",
        ("INV13",),
        of(Departure, "leave", ("if self._pacer.held_until_ms > now_ms:", "if False:")),
    ),
    Bug(
        "a lane has always room",
        ("INV14",),
        of(pacing.Pacer, "room", ("return self.slots", "return True or self.slots")),
    ),
    Bug(
        "a new owner counts nothing of what its lane has sent",
        ("INV12",),
        of(Permits, "_inherit", ("self._pacer.inherit(carried", "Pacer().inherit(carried")),
    ),
    Bug(
        "a lane's record leaves out what may leave after it",
        ("INV12",),
        of(pacing.Pacer, "carried", ("max(0, self._permitted) + reserved", "0")),
    ),
    Bug(
        "a wait is not made known to the next owner",
        ("INV13",),
        of(pacing.Pacer, "inherit", ("at_ms + carried.held_ms", "at_ms")),
    ),
    Bug(
        "a former owner's calls have no slots",
        ("INV14",),
        of(Permits, "_inherit", ("means.read_past(partition)", "asyncio.sleep(0)")),
        of(pacing.Pacer, "occupy", ("+= 1", "+= 0")),
        of(Takeovers, "_take_over", ("lane.ended(left=True)", "pass")),
    ),
    Bug(
        "permits are used before their block is durable",
        ("INV15",),
        of(
            Permits,
            "_reserve",
            ("self._write(partition", "tenure.blocks.append(Block('x', 9)); self._write(partition"),
        ),
    ),
)

OWNERS = (
    Bug(
        "a foreign lease is not waited for",
        ("INV8",),
        of(Takeovers, "_outlast", ("if left_ms > 0:", "if False:")),
    ),
    Bug(
        "a former owner's renewals are not waited for",
        ("INV16",),
        of(Claims, "renewed", ("if call is not None and", "if False and")),
    ),
    Bug(
        "whoever has a call may act",
        ("INV17",),
        of(Caller, "_may_act", ("return owned and not heartbeat.expired", "return True")),
    ),
    Bug(
        "the gate stays open",
        ("INV17",),
        of(Ownership, "surely_owns", ("and self.gate()", "")),
    ),
    Bug(
        "an assignment that came late is believed",
        ("INV17", "INV18"),
        of(app.SimApp, "_until_member", ("while not self.surely_member:", "while False:")),
    ),
    Bug(
        "epochs count from the last one that is seen, late assignments too",
        ("INV17", "INV18"),
        of(app, "next_epoch", ("if epoch > last:", "return last + 1\n    if epoch > last:")),
        of(app.SimApp, "_until_member", ("while not self.surely_member:", "while False:")),
    ),
    Bug(
        "an epoch is not raised",
        ("INV18",),
        of(app, "next_epoch", ("if epoch > last:", "return last or 1\n    if epoch > last:")),
    ),
    Bug(
        "a late answer is written directly",
        ("INV18",),
        of(Caller, "_settle", ("if self._may_act(call, heartbeat):", "if True:")),
    ),
)

DURABILITY = (
    Bug(
        "a lease is written and not awaited",
        ("INV19",),
        of(
            Caller,
            "_claimed",
            (
                "await each",
                "each.add_done_callback(lambda _: self._notes.running(call, lease))",
            ),
            ("    self._notes.running(call, lease)\n", "    pass\n"),
        ),
    ),
    Bug(
        "rows are told before the receipt is durable",
        ("INV19",),
        of(
            Caller,
            "_settle",
            (
                "await self._claims.keep(call, receipt)",
                (
                    "self._claims.keep(call, receipt).add_done_callback("
                    "lambda _: self._notes.kept(receipt, heartbeat.lease.epoch))"
                ),
            ),
            ("if self._ownership.gate():", "if False:"),
        ),
    ),
    Bug(
        "a request counts as done before its result is durable",
        ("INV19",),
        of(Answers, "_send", ("waiter.delivery.ack_after(sent)", "waiter.delivery.ack()")),
    ),
    Bug(
        "the commit passes work that is open",
        ("INV20",),
        of(PartitionOffsets, "committable", ("return self._order[0] if", "return self._next if")),
    ),
)

BOUNDS = (
    Bug(
        "a parked call does not wake up",
        ("INV26",),
        of(Claims, "_come_back", ("self.starts.offer(call)", "pass")),
    ),
    Bug(
        "a lane that has to wait does not look again",
        ("INV26",),
        of(Lane, "_come_back", ("if self._timer is None:", "if False:")),
    ),
    Bug(
        "an open call that left its process stays in its books",
        ("INV26",),
        of(Claims, "forget", ("if self.holds(call):", "if False:")),
    ),
)

BUGS = PAYING + ASKING + PACING + OWNERS + DURABILITY + BOUNDS
