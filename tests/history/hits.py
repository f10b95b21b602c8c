"""Whether a run proves anything: did its rows end, did a fault hit a call that was under way."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.calls import Calls, Send
from tests.history.events import Event, History
from tests.history.finals import Finals
from tests.history.lives import EVER, Lives, target_of

ENDED_PART_MIN = 0.95


def ended_part(history: History, finals: Finals | None = None) -> float:
    """Return which part of the rows that were fed has ended, 0 to 1; 0 where none was fed.

    Rows come from what was fed, else from the input; without either, from what was asked. Where
    rows have no endings in the history (a simulation), a call that was told counts as ended.
    """
    ended = {event["row"] for event in history.kind("entered")}
    rows = {event["row"] for event in history.kind("fed")}
    if not rows and finals is not None and finals.input_rows is not None:
        rows = {row for row, _ in finals.input_rows}
    if not rows:
        rows = {event["row"] for event in history.kind("asked")}
    if not ended:
        ended = {event["row"] for event in history.kind("told")}
    return len(rows & ended) / len(rows) if rows else 0.0


def hits(history: History) -> Iterator[tuple[Event, Send]]:
    """Yield each fault that hit a call under way, with one such call.

    A process's fault (killed, frozen, cut off) hits its own calls, one of the broker or of the
    provider hits everybody's, also those that are sent while it lasts.
    """
    sends = [send for found in history.view(Calls).by_key.values() for send in found]
    until = {id(trouble.event): trouble.end for trouble in history.view(Lives).troubles}
    for event in history.kind("killed", "frozen", "cut", "fault"):
        target = target_of(event)
        of_all = event["event"] == "fault" and target in ("kafka", "provider", "all")
        at: int = event["at"]
        end = until.get(id(event), at) if of_all else at
        for send in sends:
            ended = EVER if send.heard is None else send.heard["at"]
            if send.at <= end and ended > at and (of_all or send.by == target):
                yield event, send
                break


def proves_nothing(
    history: History, finals: Finals | None = None, *, has_faults: bool = True
) -> list[str]:
    """Return in words why a run proves nothing, although no promise was broken; usually nothing."""
    reasons = []
    part = ended_part(history, finals)
    if part < ENDED_PART_MIN:
        reasons.append(
            f"only {part:.1%} of the rows ended; below {ENDED_PART_MIN:.0%} a run proves nothing"
        )
    if has_faults and next(hits(history), None) is None:
        reasons.append("no fault hit a call that was under way")
    return reasons
