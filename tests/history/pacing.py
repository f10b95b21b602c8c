"""Pacing: rates, waits, open calls and permits of a lane, whoever owns it.

A lane is what one rate limits. One with windows lives in one partition, so it has one owner at a time,
and what a former owner did counts for the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.history.calls import Calls, Send
from tests.history.events import Event, History
from tests.history.finals import Finals
from tests.history.invariant import Limits, Violation, Window, invariant
from tests.history.lives import EVER, MS, Lives


@invariant(
    "INV12",
    """A rate such as "10 a second" holds for every stretch of a second, wherever it begins: no more is
    sent within one, in each lane (what one rate limits), also where the lane changes its owner
    meanwhile. In a run without faults the provider sees no more either, but for a slack of the way.""",
    speaks_of={"sent"},
    bounded_by={"windows"},
)
def windows(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV12."""
    calls = history.view(Calls)
    for lane, declared in limits.windows.items():
        events = [send.event for send in calls.of_lane(lane)]
        for window in declared:
            yield from _above(events, window, f"lane {lane}", "sent", 0)
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
    that lane until the wait is over; nor does another one, once the wait is durable.""",
    speaks_of={"held"},
)
def waits(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV13."""
    held: dict[tuple[str, str], Event] = {}
    known = [*history.kind("held", "reserved"), *history.view(Calls).sends]
    for event in sorted(known, key=lambda event: int(event["at"])):
        lane = event["lane"]
        if event["event"] == "sent":
            for place in ((event["by"], lane), ("", lane)):
                yield from _early(event, held.get(place))
        elif event["event"] == "held":
            _hold(held, (event["by"], lane), event)
        elif event["until"]:
            _hold(held, ("", lane), event)


def _hold(held: dict[tuple[str, str], Event], place: tuple[str, str], event: Event) -> None:
    known = held.get(place)
    if known is None or event["until"] > known["until"]:
        held[place] = event


def _early(sent: Event, wait: Event | None) -> Iterator[Violation]:
    if wait is not None and wait["at"] < sent["at"] < wait["until"]:
        left_ms = (wait["until"] - sent["at"]) / MS
        why = f"{sent['by']} sent {left_ms:,.3f} ms before the end of a wait that was known"
        yield Violation("INV13", f"lane {sent['lane']}", why, (wait, sent))


@invariant(
    "INV14",
    """There are never more calls under way in a lane than its declared maximum, those of a former
    owner included until they ended or their leases did. (Where a lane has no windows several
    processes share it, each with a part of the slots; their sum is not judged, since parts are
    rounded up to one slot.)""",
    speaks_of={"sent"},
    bounded_by={"concurrency"},
)
def open_calls(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV14."""
    calls, lives = history.view(Calls), history.view(Lives)
    for lane, allowed in limits.concurrency.items():
        if lane in limits.windows:
            yield from _too_many(f"lane {lane}", calls.of_lane(lane), allowed, lives)
            continue
        for (by, name), sends in calls.by_lane.items():
            if name == lane:
                yield from _too_many(f"lane {lane} of {by}", sends, allowed, lives)


def _too_many(
    subject: str, sends: Sequence[Send], allowed: int, lives: Lives
) -> Iterator[Violation]:
    under_way: dict[int, Event] = {}
    changes: list[tuple[float, int, int]] = []
    changes += [(send.at, 1, number) for number, send in enumerate(sends)]
    changes += [(_over(send, lives), 0, number) for number, send in enumerate(sends)]
    for _, begins, number in sorted(changes):
        if not begins:
            under_way.pop(number, None)
            continue
        under_way[number] = sends[number].event
        if len(under_way) > allowed:
            why = f"{len(under_way)} calls were under way; allowed are {allowed}"
            yield Violation("INV14", subject, why, _edges(list(under_way.values())))
            return


def _over(send: Send, lives: Lives) -> float:
    """Return when a send had ended, its sender, or its lease."""
    ends = [EVER if send.heard is None else send.heard["at"], send.lease.over(EVER)]
    died = lives.death(send.by, send.at, EVER)
    return min([*ends, EVER if died is None else died["at"]])


@invariant(
    "INV15",
    """A call of a lane with windows leaves with a permit of a block that its sender had made durable
    before; a block has so many calls as it has permits, and no two blocks are one.""",
    speaks_of={"reserved"},
    bounded_by={"windows"},
)
def permits(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV15."""
    blocks: dict[str, Event] = {}
    used: dict[str, list[Event]] = defaultdict(list)
    known = [*history.kind("reserved"), *history.view(Calls).sends]
    for event in sorted(known, key=lambda event: int(event["at"])):
        name, lane = event.get("block", ""), event["lane"]
        if event["event"] == "reserved":
            if name in blocks:
                why = "was reserved a second time"
                yield Violation("INV15", f"block {name}", why, (blocks[name], event))
            blocks[name] = event
            continue
        if lane not in limits.windows:
            continue
        used[name].append(event)
        block = blocks.get(name)
        if block is None or block["by"] != event["by"] or block["lane"] != lane:
            why = f"{event['by']} sent with a permit of block {name!r}, which it had not reserved"
            yield Violation("INV15", f"lane {lane}", why, (event,))
        elif len(used[name]) > block["permits"]:
            why = f"{len(used[name])} calls left with its {block['permits']} permits"
            yield Violation("INV15", f"block {name}", why, (block, *_edges(used[name])))
