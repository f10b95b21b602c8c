"""What dispatch tells the history of a call's life (docs/history.md)."""

from __future__ import annotations

from rowmill.streams.core.identity import idempotency_key
from rowmill.streams.core.outcomes import Answered, Outcome
from rowmill.streams.core.receipts import Lease, Receipt
from rowmill.streams.dispatch.calls import OpenCall
from rowmill.streams.dispatch.lanes import Lane
from rowmill.streams.ports import Note, silent


class CallNotes:
    """Notes about calls; where no history is kept they cost a comparison."""

    def __init__(self, note: Note = silent) -> None:
        self._note = note

    def claimed(self, call: OpenCall, lease: Lease, ends_ms: float) -> None:
        """A lease is about to be written. `ends_ms`: own monotonic clock, as all times here."""
        if self._note is not silent:
            self._note(
                "claimed",
                **_call(call),
                lease=lease.id,
                epoch=lease.epoch,
                partition=call.partition,
                expires=_ns(ends_ms),
            )

    def running(self, call: OpenCall, lease: Lease) -> None:
        """The running receipt is durable."""
        self._note("running", receipt=call.receipt.key, lease=lease.id)

    def sent(self, call: OpenCall, lease: Lease, left_ms: int) -> None:
        """A request is about to leave. `left_ms`: when that was decided, and counts for its lane."""
        if self._note is not silent:
            self._note(
                "sent",
                **_call(call),
                key=_key(call.receipt),
                lease=lease.id,
                epoch=lease.epoch,
                block=call.permit,
                left=_ns(left_ms),
                idempotent=call.tool.idempotent,
            )

    def renewed(self, receipt: Receipt, lease: Lease, ends_ms: float) -> None:
        """A renewal is acknowledged."""
        self._note("renewed", receipt=receipt.key, lease=lease.id, expires=_ns(ends_ms))

    def heard(self, call: OpenCall, lease: Lease, outcome: Outcome) -> None:
        """A send ended."""
        if self._note is not silent:
            refused = None if isinstance(outcome, Answered) else outcome
            self._note(
                "heard",
                receipt=call.receipt.key,
                key=_key(call.receipt),
                lease=lease.id,
                outcome=refused.kind.name.lower() if refused else "answered",
                status=refused.status_code if refused else None,
                retryable=refused.retryable if refused else False,
                maybe_booked=refused.maybe_booked if refused else True,
                reached=refused.reached if refused else True,
            )

    def held(self, lane: Lane) -> None:
        """A lane lets nothing leave for a while."""
        self._note("held", lane=lane.name, until=_ns(lane.pacer.held_until_ms))

    def taken_over(self, former: Receipt, taken: Receipt) -> None:
        """A running receipt of a former owner is ours to go on with."""
        self._note(
            "taken_over",
            receipt=taken.key,
            purchase=taken.purchase,
            lease=former.lease.id if former.lease else None,
            state=taken.state,
        )

    def kept(self, receipt: Receipt, epoch: int) -> None:
        """A final receipt is durable under `epoch`."""
        self._note(
            "kept",
            receipt=receipt.key,
            purchase=receipt.purchase,
            state=receipt.state,
            epoch=epoch,
        )


def _call(call: OpenCall) -> dict[str, object]:
    receipt = call.receipt
    return {
        "receipt": receipt.key,
        "purchase": receipt.purchase,
        "tool": call.tool.id,
        "lane": call.provider.id,
    }


def _key(receipt: Receipt) -> str:
    return "" if receipt.purchase is None else idempotency_key(receipt.key, receipt.purchase)


def _ns(ms: float) -> int:
    return round(ms * 1_000_000)
