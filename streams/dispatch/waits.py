"""How long a follower waits for somebody else's call (R5): `wait_s` of its question, then it is told.

A receipt without a lease (its call waits for a permit or a retry) needs no reclaiming: its owner sends
it for whoever waits, so the wait begins anew. Under a lease the follower hears "still running
elsewhere", and the receipt stays as it is; an owner that died is taken over without its followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.calls import OpenCall, Question, Waiter
from rowmill.streams.dispatch.owner import Ownership
from rowmill.streams.ports import Clock

log = structlog.get_logger(__name__)

AGAIN_S = 1.0
"""Least wait after one that ran out while the call had no lease."""

EARLY_MS = 5
"""A loop's timer counts whole milliseconds and may come that little too early."""


class Waits:
    """Tells followers whose wait runs out. `holds`: whether a call is still open here."""

    def __init__(
        self,
        answers: Answers,
        ownership: Ownership,
        clock: Clock,
        holds: Callable[[OpenCall], bool],
    ) -> None:
        self._answers = answers
        self._ownership = ownership
        self._clock = clock
        self._holds = holds

    def begin(self, call: OpenCall, waiter: Waiter) -> None:
        """Let a follower of `call` wait as long as its question allows; who bought it just waits."""
        bought_by = call.receipt.asker
        if waiter.until_ms is None or (bought_by and bought_by.same_question(waiter.asker)):
            return
        left_s = (waiter.until_ms - self._clock.monotonic_ms()) / 1000
        self._later(max(left_s, 0.0), call, waiter.question)

    def _later(self, wait_s: float, call: OpenCall, question: Question) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(wait_s, self._ran_out, wait_s, call, question)

    def _ran_out(self, wait_s: float, call: OpenCall, question: Question) -> None:
        if not self._holds(call) or not self._ownership.owns(call.partition):
            return  # answered, or left to another owner, whom the request reaches again
        if call.receipt.state != "running":
            self._later(max(wait_s, AGAIN_S), call, question)
            return
        waiter = call.leave(question, self._clock.monotonic_ms() + EARLY_MS)
        if waiter is None:
            return
        log.info("wait_ran_out", receipt=call.receipt.key, run=waiter.asker.run)
        self._answers.still_running(call.receipt, waiter, self._ownership.epoch(call.partition))
