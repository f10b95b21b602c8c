"""What nobody may do with a receipt, whoever holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowmill.streams.core import receipts
from rowmill.streams.core.outcomes import FailureKind
from rowmill.streams.core.receipts import Failure, Lease, Receipt


def illegal_from(receipt: Receipt) -> list[Callable[[], Any]]:
    """Return the transitions that nobody may make from this receipt."""
    lease = Lease("not this one", 1, "w", 20_000)
    failure = Failure(FailureKind.AUTH_SCOPE_CHANGED, "never persisted")
    own = receipt.lease.id if receipt.lease else "none"
    by_state: dict[str, list[Callable[[], Any]]] = {
        "queued": [lambda: receipts.pick(receipt)],
        "pending": [lambda: receipts.start(receipt, lease, 0)],
        "running": [
            lambda: receipts.take_over(
                receipt, idempotent=True, key_lifetime_ms=10**12, now_wall_ms=0
            )
        ],
    }
    legal = by_state.pop(receipt.state, [])
    assert len(legal) <= 1
    other = [illegal for each in by_state.values() for illegal in each]
    if receipt.state not in ("queued", "pending"):
        other.append(lambda: receipts.release(receipt))
    return [
        *other,
        lambda: receipts.complete(receipt, lease.id, "x", 0),
        lambda: receipts.park(receipt, lease.id, reached=True, uses_attempt=True),
        lambda: receipts.fail(receipt, own, failure, 0, reached=True),
    ]
