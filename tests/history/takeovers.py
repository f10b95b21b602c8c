"""What a partition's new owner found in the receipts' changelog, whether its writer heard so or not."""

from __future__ import annotations

from collections import defaultdict

from tests.history.finals import Finals

RECEIPTS = "rowmill-dispatch-receipts-changelog"
EPOCH_KEY = "!epoch"
"""Under it each owner of a partition writes first, once it has read what is there."""

Settled = tuple[str | None, str]
"""A purchase and the state that it ended in."""


def settled_before(finals: Finals) -> dict[tuple[str, int], list[Settled]]:
    """Return what had ended, by receipt and by the epoch whose owner found it so, in order."""
    found: dict[tuple[str, int], list[Settled]] = {}
    settled: dict[int, dict[str, list[Settled]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[int, int] = defaultdict(int)
    for record in (finals.topics or {}).get(RECEIPTS, ()):
        value, ended = record.value, settled[record.partition]
        if (record.epoch or 0) < owners[record.partition]:
            continue  # it came late, and counts for nobody
        if record.key == EPOCH_KEY:
            owners[record.partition] = record.epoch or 0
            found |= {(key, record.epoch or 0): list(past) for key, past in ended.items()}
        elif isinstance(value, dict) and "receipt" in value:
            receipt = value["receipt"]
            if receipt.get("state") in ("completed", "failed"):
                ended[str(record.key)].append((receipt.get("purchase"), receipt["state"]))
    return found
