"""Which calls may start: not those of a run that is halted, by its limit or a provider's credits (Q5).

What was sent goes on and is kept. What was not is withheld: its rows stay pending, and the run's next
life asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.batches import Batches
from rowmill.streams.dispatch.calls import OpenCall, Waiter, ask_again
from rowmill.streams.dispatch.lanes import Lanes
from rowmill.streams.dispatch.limits import RunLimits
from rowmill.streams.dispatch.owner import Ownership
from rowmill.topics.contracts import DrawAnswer

log = structlog.get_logger(__name__)

LIMIT = ""
"""Stands for a provider where a run's own limit is reached."""


class Halts:
    """Which lives of runs are halted: by a provider that is out of credits, or by their own limit."""

    def __init__(self) -> None:
        self._halted: dict[tuple[str, str], tuple[int, str]] = {}

    def halt(self, run: str, life: int, reason: str, by: str) -> None:
        """Note why calls of that life of the run may not start. `by`: provider id, or LIMIT."""
        known = self._halted.get((run, by))
        if known is None or known[0] < life:
            self._halted[run, by] = (life, reason)

    def forget_before(self, run: str, life: int) -> None:
        """A run has another life: what halted its older ones is over."""
        for key, (halted, _) in list(self._halted.items()):
            if key[0] == run and halted < life:
                del self._halted[key]

    def reason(self, waiter: Waiter, *by: str) -> str | None:
        """Return why a waiter's call may not start, None where it may."""
        for each in by:
            life, reason = self._halted.get((waiter.asker.run, each), (0, ""))
            if reason and life >= waiter.asker.life:
                return reason
        return None

    def holds_back(self, call: OpenCall, *by: str) -> bool:
        """True where nobody waits for a call whose run may go on."""
        if not self._halted or not call.waiters:
            return False
        return all(self.reason(one, *by) is not None for one in call.waiters.values())


class Starts:
    """Lets calls into their lanes, or withholds them."""

    def __init__(
        self,
        lanes: Lanes,
        answers: Answers,
        ownership: Ownership,
        limits: RunLimits,
        batches: Batches,
        open_calls: Mapping[str, OpenCall],
        forget: Callable[[OpenCall], None],
    ) -> None:
        """`open_calls`: all of this process, by receipt; `forget` drops one of them."""
        self._lanes = lanes
        self._answers = answers
        self._ownership = ownership
        self._limits = limits
        self._batches = batches
        self._open = open_calls
        self._forget = forget
        self._halts = Halts()
        limits.connect(self._drawn)

    def begin(self, call: OpenCall, replaced: str | None) -> None:
        """Start a purchase, once the limit of the run that makes it allows that.

        `replaced`: purchase id of the receipt that it replaces.
        """
        if self._halts.holds_back(call, call.provider.id, LIMIT):
            self.withhold(call)
            return
        call.draw = self._limits.draw(call, replaced)
        if not call.draw:
            self.offer(call)

    def offer(self, call: OpenCall) -> None:
        """Queue a call in its lane, unless its provider is out of credits.

        A limit does not matter any more: it was drawn for.
        """
        if self.held_back(call):
            self.withhold(call)
        elif self._batches.takes(call):
            self._batches.add(call)
        else:
            self._lanes.of(call.provider).offer(call)

    def held_back(self, call: OpenCall) -> bool:
        """Say whether a call may not start any more, since its provider is out of credits."""
        return self._halts.holds_back(call, call.provider.id)

    def out_of_credits(self, call: OpenCall, reason: str) -> None:
        """A provider wants money: the runs that wait for this call ask it nothing more."""
        for waiter in list(self._batches.waiters_of(call)):
            self._halt(waiter.asker.run, waiter.asker.life, reason, call.provider.id)
        for waiting in list(self._open.values()):
            here = not waiting.sending and waiting.receipt.state == "queued"
            if here and self.held_back(waiting):
                self.withhold(waiting)

    def withhold(self, call: OpenCall) -> None:
        """Tell everybody who waits for a call that it does not start; who may go on asks anew."""
        self._lanes.withdraw(call)
        self._forget(call)
        if not self._ownership.owns(call.partition):
            return
        epoch = self._ownership.epoch(call.partition)
        for waiter in call.waiters.values():
            reason = self._halts.reason(waiter, call.provider.id, LIMIT)
            if reason is None:
                ask_again([waiter])
            else:
                self._answers.withheld(call.receipt, waiter, epoch, reason)
        ask_again(call.later)

    def run_changed(self, run: str, life: int) -> None:
        """Take in a run as it stands."""
        self._halts.forget_before(run, life)

    def _halt(self, run: str, life: int, reason: str, by: str) -> None:
        log.info("run_halted", run=run, life=life, by=by or "its limit", reason=reason)
        self._halts.halt(run, life, reason, by)

    def _drawn(self, answer: DrawAnswer) -> None:
        if answer.refused is not None:
            self._halt(answer.run, answer.life, answer.refused, LIMIT)
        call = self._open.get(answer.receipt)
        if call is None or call.draw != answer.draw or _life_of(call) != answer.life:
            return  # it went to another owner meanwhile, or was withheld
        call.draw = ""
        if answer.refused is None:
            self.offer(call)
        else:
            self.withhold(call)


def _life_of(call: OpenCall) -> int:
    """Return the life of the run that makes the purchase."""
    return call.receipt.asker.life if call.receipt.asker is not None else 0
