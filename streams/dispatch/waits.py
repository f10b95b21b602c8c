"""How long a follower waits for somebody else's call (R5): `wait_s` of its question, then it is told.

A call that is open at the receipt's owner goes on by itself: it holds a lease, waits for a permit or a
retry, or is taken over once a foreign lease has ended. So nothing is left to reclaim when a wait runs
out; the follower hears "still running elsewhere", and the receipt stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.calls import OpenCall, Waiter
from rowmill.streams.dispatch.owner import Ownership
from rowmill.streams.ports import Clock

log = structlog.get_logger(__name__)

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
        asyncio.get_running_loop().call_later(left_s, self._ran_out, call, waiter.question)

    def _ran_out(self, call: OpenCall, question: tuple[str, str, str]) -> None:
        if not self._holds(call):
            return  # answered, or left to another owner, whom the request reaches again
        if not self._ownership.owns(call.partition):
            return
        waiter = call.leave(question, self._clock.monotonic_ms() + EARLY_MS)
        if waiter is None:
            return
        log.info("wait_ran_out", receipt=call.receipt.key, run=waiter.asker.run)
        self._answers.still_running(call.receipt, waiter, self._ownership.epoch(call.partition))
