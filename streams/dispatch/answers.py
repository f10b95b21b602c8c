"""Answers on their way back: a result per waiter, and its request acknowledged once that is durable."""

from __future__ import annotations

from typing import Any

from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Receipt
from rowmill.streams.dispatch.calls import Waiter
from rowmill.streams.engine.app import RoleApp
from rowmill.topics import codec
from rowmill.topics.catalogue import PROVIDER_RESULTS
from rowmill.topics.contracts import CallError, ProviderResult


class Answers:
    """Produces results."""

    def __init__(self, app: RoleApp) -> None:
        self._app = app

    def give(self, receipt: Receipt, waiter: Waiter, epoch: int) -> None:
        """Send a receipt's answer to one waiter; acknowledge its request when it is durable.

        Only for a receipt that is final and durable.
        """
        self._send(result_of(receipt, waiter, epoch), waiter)

    def still_running(self, receipt: Receipt, waiter: Waiter, epoch: int) -> None:
        """Tell one waiter that its wait ran out (R5). The receipt stays as it is."""
        error = CallError(
            kind=FailureKind.STILL_RUNNING, message="wait_s ran out; a rerun finds the answer"
        )
        result = _result(receipt, waiter, epoch, status="failed", error=error)
        self._send(result, waiter)

    def withheld(self, receipt: Receipt, waiter: Waiter, epoch: int, reason: str) -> None:
        """Tell one waiter that its call may not start any more in this life of its run."""
        error = CallError(kind=FailureKind.CANCELLED, message=reason)
        self._send(_result(receipt, waiter, epoch, status="withheld", error=error), waiter)

    def _send(self, result: ProviderResult, waiter: Waiter) -> None:
        self._app.note(
            "told",
            receipt=result.receipt,
            run=result.run,
            row=result.row,
            call=result.call,
            status=result.status,
            epoch=result.epoch,
        )
        sent = self._app.produce(
            PROVIDER_RESULTS,
            key=result.row,
            value=codec.encode(result),
            partition=waiter.reply_partition,
            headers=codec.headers(
                result,
                id_=f"{result.receipt}/{result.row}/{result.call}",
                source=self._app.conf.id,
                run=result.run,
            ),
        )
        waiter.delivery.ack_after(sent)


def result_of(receipt: Receipt, waiter: Waiter, epoch: int) -> ProviderResult:
    """Return what a waiter is told: the spend belongs to the asker that opened the purchase (Q4)."""
    asker = waiter.asker
    bought = receipt.asker is not None and receipt.asker.same_question(asker)
    error = None
    if receipt.failure is not None:
        failure = receipt.failure
        error = CallError(
            kind=failure.kind, message=failure.message, status_code=failure.status_code
        )
    return _result(
        receipt,
        waiter,
        epoch,
        status=receipt.state,  # final, by the caller's word
        output=receipt.output,
        error=error,
        reused=not bought,
        sends=receipt.sends if bought else 0,
        cost=receipt.cost if bought and receipt.state == "completed" else 0,
    )


def _result(receipt: Receipt, waiter: Waiter, epoch: int, **told: Any) -> ProviderResult:
    asker = waiter.asker
    return ProviderResult.model_construct(
        run=asker.run,
        life=asker.life,
        row=asker.row,
        call=asker.call,
        receipt=receipt.key,
        tool=receipt.tool,
        provider=receipt.provider,
        epoch=epoch,
        **told,
    )
