"""Requests as they come: decoded, matched with their run's tools, held while the run is unknown."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Failure, Receipt
from rowmill.streams.dispatch.answers import Answers
from rowmill.streams.dispatch.calls import waiter_of
from rowmill.streams.dispatch.claims import Claims
from rowmill.streams.dispatch.limits import RunLimits
from rowmill.streams.dispatch.owner import OwnerMail
from rowmill.streams.engine.app import RoleApp
from rowmill.streams.engine.dead_letter import set_aside
from rowmill.streams.engine.delivery import Delivery
from rowmill.topics import codec
from rowmill.topics.contracts import (
    Barrier,
    Contract,
    Draw,
    DrawAnswer,
    Forget,
    Renewal,
    RunRecord,
    Settlement,
    ToolRequest,
)
from rowmill.topics.views import RunsView

log = structlog.get_logger(__name__)

KINDS: Mapping[str, type[Contract]] = {
    "ask": ToolRequest,
    "renew": Renewal,
    "settle": Settlement,
    "barrier": Barrier,
    "forget": Forget,
    "draw": Draw,
    "drawn": DrawAnswer,
}
"""What `tool.requests` carries: questions, and words to a receipt's owner."""

PARTITIONS_MAX = 1 << 16
"""More than any topic has."""

Tools = Mapping[str, tuple[ToolSpec, ProviderSpec]]


class Requests:
    """What `tool.requests` brings. `offer` never waits: the partition goes on (Flow)."""

    def __init__(
        self,
        app: RoleApp,
        runs: RunsView,
        claims: Claims,
        answers: Answers,
        mail: OwnerMail,
        limits: RunLimits,
        *,
        partitions: int = PARTITIONS_MAX,
    ) -> None:
        """`partitions`: of `provider.results`, which a request names one of."""
        self._app = app
        self._partitions = partitions
        self._runs = runs
        self._claims = claims
        self._answers = answers
        self._mail = mail
        self._limits = limits
        self._tools: dict[str, tuple[RunRecord, Tools]] = {}
        self._held: dict[str, list[tuple[Delivery, ToolRequest]]] = {}

    def offer(self, delivery: Delivery) -> None:
        """Take one record in; what nobody can read is set aside."""
        try:
            record = codec.decode_kind(KINDS, "ask", delivery.value)
        except codec.UndecodableRecord as error:
            set_aside(self._app, delivery, str(error))
            return
        match record:
            case ToolRequest() if record.reply_partition >= self._partitions:
                # Its answer would wait for that partition for ever, and with it every commit.
                reason = f"reply_partition {record.reply_partition}; there are {self._partitions}"
                set_aside(self._app, delivery, reason)
            case ToolRequest():
                self._route(delivery, record)
            case Settlement():
                self._claims.settled_late(delivery, record)
            case Renewal():
                self._claims.renewed(delivery, record)
            case Barrier():
                self._mail.arrived(record, delivery)
            case Forget():
                self._claims.forgotten(delivery, record)
            case Draw():
                self._limits.asked(delivery, record)
            case DrawAnswer():
                self._limits.answered(delivery, record)

    def run_changed(self, record: RunRecord) -> None:
        """Let out what waited for a run to be known."""
        for delivery, request in self._held.pop(record.run, ()):
            if delivery.live:
                self._route(delivery, request)

    def holds(self, delivery: Delivery) -> bool:
        """True where that request waits for its run to be known."""
        return any(delivery is held for waiting in self._held.values() for held, _ in waiting)

    def lost(self, partitions: set[int]) -> None:
        """Forget what was held of partitions that went to another owner."""
        for run, waiting in list(self._held.items()):
            kept = [(delivery, asked) for delivery, asked in waiting if delivery.live]
            self._held[run] = [entry for entry in kept if entry[0].partition not in partitions]

    def _route(self, delivery: Delivery, request: ToolRequest) -> None:
        tools = self._tools_of(request.run)
        if tools is None:
            self._held.setdefault(request.run, []).append((delivery, request))
            return
        found = tools.get(request.tool)
        if found is None:
            self._refuse(delivery, request)
            return
        self._claims.ask(delivery, request, *found)

    def _tools_of(self, run: str) -> Tools | None:
        record = self._runs.get(run)
        if record is None:
            return None
        known = self._tools.get(run)
        if known is not None and known[0] is not record and _same_tools(known[0], record):
            # A main writes its record again every 3 s. The specs stay the same objects, by which
            # lanes and request templates know them.
            known = self._tools[run] = (record, known[1])
        if known is None or known[0] is not record:
            providers = {provider.id: provider for provider in record.providers}
            tools = {
                tool.id: (tool, providers[tool.provider])
                for tool in record.tools
                if tool.provider in providers
            }
            known = self._tools[run] = (record, tools)
        return known[1]

    def _refuse(self, delivery: Delivery, request: ToolRequest) -> None:
        """A tool that the run does not declare: the row fails with a reason, nothing is stored."""
        failure = Failure(
            FailureKind.PERMANENT, f'run {request.run} declares no tool "{request.tool}"'
        )
        receipt = Receipt(
            request.receipt, request.tool, provider="", state="failed", failure=failure
        )
        waiter = waiter_of(request, delivery, 0, lambda: self._route(delivery, request))
        self._answers.give(receipt, waiter, self._app.epoch(delivery.partition))


def _same_tools(known: RunRecord, record: RunRecord) -> bool:
    return known.tools == record.tools and known.providers == record.providers
