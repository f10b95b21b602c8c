"""Questions of open rows: asked once, asked again for an answer that never came, answered once.

Results need no offset discipline: a result that is lost (owner changed, record unreadable) is asked
for again after `ask_again_s`, doubling to two minutes, and dispatch answers from the receipt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rowmill.streams.engine.app import RoleApp
from rowmill.topics import codec
from rowmill.topics.catalogue import TOOL_REQUESTS
from rowmill.topics.contracts import LaneRecord, ProviderResult, ToolRequest
from rowmill.topics.places import partition_of

log = structlog.get_logger(__name__)

ASK_AGAIN_S_MAX = 120

Question = tuple[str, str, str]
"""(run, row, call)"""


@dataclass(slots=True)
class _Asked:
    request: ToolRequest
    answer: asyncio.Future[ProviderResult]
    timer: asyncio.TimerHandle | None = None


class Asks:
    """Open questions of this worker. `lane_of`: where a tool's receipts live, None: not known."""

    def __init__(
        self, app: RoleApp, lane_of: Callable[[str], LaneRecord | None], ask_again_s: float
    ) -> None:
        self._app = app
        self._lane_of = lane_of
        self._ask_again_s = ask_again_s
        self._open: dict[Question, _Asked] = {}
        self._unsent: list[_Asked] = []

    def connect(self, withheld: Callable[[str, str, str], None]) -> None:
        """Name whom to tell of a run's row whose call may not start any more, and why."""
        self._withheld = withheld

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, request: ToolRequest) -> asyncio.Future[ProviderResult]:
        """Send a question to the partition that owns its receipt.

        Returns: a future of the answer. The same question asked twice by one row is one question.
        """
        question = (request.run, request.row, request.call)
        asked = self._open.get(question)
        if asked is None:
            asked = _Asked(request, asyncio.get_running_loop().create_future())
            self._open[question] = asked
            self._send(asked, self._ask_again_s)
        return asked.answer

    def answered(self, result: ProviderResult) -> None:
        """Hand a result to whoever asked; nobody does where it was answered before."""
        question = (result.run, result.row, result.call)
        asked = self._open.get(question)
        if asked is None or result.life < asked.request.life:
            return  # of a life that is over: a failed row may run again, and must not hear it twice
        self._app.note(
            "answered",
            run=result.run,
            row=result.row,
            call=result.call,
            receipt=result.receipt,
            epoch=result.epoch,
        )
        del self._open[question]
        if asked.timer is not None:
            asked.timer.cancel()
        if result.status == "withheld":
            asked.answer.cancel()
            reason = result.error.message if result.error is not None else "no reason given"
            self._withheld(result.run, result.row, reason)
        elif not asked.answer.done():
            asked.answer.set_result(result)

    def withdraw(self, run: str, row: str, calls: set[str]) -> None:
        """Forget a row's open questions: it was cancelled."""
        for call in calls:
            asked = self._open.pop((run, row, call), None)
            if asked is not None:
                if asked.timer is not None:
                    asked.timer.cancel()
                asked.answer.cancel()

    def lane_changed(self) -> None:
        """Send what waited for its tool's lane to be known."""
        unsent, self._unsent = self._unsent, []
        for asked in unsent:
            if not asked.answer.done():
                self._produce(asked)

    def _produce(self, asked: _Asked) -> None:
        request = asked.request
        lane = self._lane_of(request.tool)
        if lane is None:
            self._unsent.append(asked)
            return
        self._app.note(
            "asked",
            run=request.run,
            row=request.row,
            column=request.call.partition("/")[0],
            call=request.call,
            receipt=request.receipt,
            asked=request.asked,
        )
        self._app.produce(
            TOOL_REQUESTS,
            key=request.receipt,
            value=codec.encode(request),
            partition=partition_of(request.receipt, lane),
            headers=codec.headers(
                request,
                id_=f"{request.run}/{request.row}/{request.call}/{request.asked}",
                source=self._app.conf.id,
                run=request.run,
            ),
        )

    def _send(self, asked: _Asked, again_s: float) -> None:
        self._produce(asked)
        loop = asyncio.get_running_loop()
        asked.timer = loop.call_later(again_s, self._again, asked, again_s)

    def _again(self, asked: _Asked, waited_s: float) -> None:
        request = asked.request
        log.info("asked_again", run=request.run, row=request.row, call=request.call)
        asked.request = request.model_copy(update={"asked": request.asked + 1})
        self._send(asked, min(waited_s * 2, ASK_AGAIN_S_MAX))
