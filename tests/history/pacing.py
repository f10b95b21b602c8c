"""Pacing: rates, waits and open calls of a lane, as its owner kept them.

A lane is what one rate limits. What a lane's owner knows of it (sends, waits) is in memory until the
pacing snapshots (issue 6), so each process is judged by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.history.calls import Calls
from tests.history.events import Event, History
from tests.history.finals import Finals
from tests.history.invariant import Limits, Violation, Window, invariant
from tests.history.lives import MS


@invariant(
    "INV12",
    """A rate such as "10 a second" holds for every stretch of a second, wherever it begins: no
    process sends more within one, in each lane (what one rate limits). In a run without faults the
    provider sees no more either, but for a slack of the way. Over a change of the lane's owner it
    is not promised yet (issue 6).""",
    speaks_of={"sent"},
    bounded_by={"windows"},
)
def windows(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV12."""
    calls = history.view(Calls)
    for (by, lane), sends in calls.by_lane.items():
        events = [send.event for send in sends]
        for window in limits.windows.get(lane, ()):
            yield from _above(events, window, f"lane {lane} of {by}", "sent", 0)
    if limits.has_faults or history.kind("fault", "frozen", "cut", "killed"):
        return
    for lane, arrived in _arrivals(history, calls).items():
        for window in limits.windows.get(lane, ()):
            yield from _above(
                arrived, window, f"lane {lane}", "seen by the provider", limits.arrival_slack_ms
            )


def _above(
    events: Sequence[Event], window: Window, subject: str, verb: str, slack_ms: int
) -> Iterator[Violation]:
    length = (window.window_ms - slack_ms) * MS
    place = window.calls
    while place < len(events):
        first, last = events[place - window.calls], events[place]
        if last["at"] - first["at"] >= length:
            place += 1
            continue
        within_ms = (last["at"] - first["at"]) / MS
        why = (
            f"{window.calls + 1} requests {verb} within {within_ms:,.3f} ms; allowed are "
            f"{window.calls} in any {window.window_ms:,} ms"
        )
        shown = events[place - window.calls : place + 1]
        yield Violation("INV12", subject, why, _edges(shown))
        place += window.calls


def _edges(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(events) if len(events) <= 6 else (*events[:3], *events[-3:])


def _arrivals(history: History, calls: Calls) -> dict[str, list[Event]]:
    """Return what arrived in lanes that one process sent all calls of."""
    senders: dict[str, set[str]] = defaultdict(set)
    for by, lane in calls.by_lane:
        senders[lane].add(by)
    found: dict[str, list[Event]] = defaultdict(list)
    for event in history.kind("arrived"):
        sends = calls.by_key.get(event["key"])
        if sends and len(senders[sends[0].lane]) == 1:
            found[sends[0].lane].append(event)
    return found


@invariant(
    "INV13",
    """After a provider asked to wait (429, Retry-After), the process that heard it sends nothing in
    that lane until the wait is over.""",
    speaks_of={"held"},
)
def waits(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV13."""
    held: dict[tuple[str, str], Event] = {}
    for event in history.kind("held", "sent"):
        place = (event["by"], event["lane"])
        wait = held.get(place)
        if event["event"] == "held":
            if wait is None or event["until"] > wait["until"]:
                held[place] = event
        elif wait is not None and wait["at"] < event["at"] < wait["until"]:
            left_ms = (wait["until"] - event["at"]) / MS
            why = f"sent {left_ms:,.3f} ms before the end of the wait that it had heard of"
            yield Violation("INV13", f"lane {place[1]} of {place[0]}", why, (wait, event))


@invariant(
    "INV14",
    """A process never has more calls under way in a lane than the lane's declared maximum. (Where
    several processes share a lane, each has a part of the slots; their sum is not judged, since
    parts are rounded up to one slot.)""",
    speaks_of={"sent"},
    bounded_by={"concurrency"},
)
def open_calls(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV14."""
    for (by, lane), sends in history.view(Calls).by_lane.items():
        allowed = limits.concurrency.get(lane)
        if allowed is None:
            continue
        under_way: dict[int, Event] = {}
        changes = [(send.at, 1, number, send) for number, send in enumerate(sends)]
        changes += [
            (send.heard["at"], 0, number, send)
            for number, send in enumerate(sends)
            if send.heard is not None
        ]
        changes.sort(key=lambda change: change[:3])
        for _, begins, number, send in changes:
            if not begins:
                under_way.pop(number, None)
                continue
            under_way[number] = send.event
            if len(under_way) > allowed:
                why = f"{len(under_way)} calls were under way; allowed are {allowed}"
                shown = _edges(list(under_way.values()))
                yield Violation("INV14", f"lane {lane} of {by}", why, shown)
                break
