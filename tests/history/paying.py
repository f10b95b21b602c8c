"""Paying: what is sent again and why, under which key, and that nobody buys a question twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tests.history.calls import Calls, Send
from tests.history.events import Event, History
from tests.history.finals import Finals
from tests.history.invariant import Limits, Violation, invariant
from tests.history.lives import MS, Lives
from tests.history.takeovers import Settled, settled_before

REPEATS_AFTER_DEATH_MAX = 2
"""Three sends of a purchase may end in their sender's death (docs/receipts.md): two come after one."""


@invariant(
    "INV7",
    """A paid question is sent again only where the send before it was answered "try again", never
    reached the provider, or lost its sender (killed; or frozen or cut off until its lease was over)
    before the answer was safe; after three deaths no more. What was answered once is not bought
    anew, and every request that the provider saw was announced.""",
    speaks_of={"sent"},
)
def repeats(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV7."""
    calls = history.view(Calls)
    kept = _sure_endings(history, limits)
    for key, sends in calls.by_key.items():
        yield from _repeated(calls, key, sends, kept)
    yield from _bought_twice(history, calls, settled_before(finals), limits)
    yield from _unannounced(history, calls)


def _repeated(
    calls: Calls, key: str, sends: list[Send], kept: dict[tuple[str, str], Event]
) -> Iterator[Violation]:
    deaths: list[Event] = []
    ended = kept.get((sends[0].receipt, sends[0].purchase))
    for former, send in pairwise(sends):
        proof = [*former.story, *send.story]
        if ended is not None and ended["at"] < send.at:
            why = f"sent again by {send.by} although its final answer was durable before"
            yield _violation("INV7", key, why, [*proof, ended])
        elif former.heard is not None and not former.open_at(send.at):
            if former.heard["retryable"] or not former.heard["reached"]:
                continue
            death = calls.death_before(former, send)
            if death is None:
                why = (
                    f"sent again by {send.by} although the send before it had ended as "
                    f'"{former.heard["outcome"]}", which asks for no other, and its sender lived'
                )
                yield _violation("INV7", key, why, proof)
            else:
                deaths.append(death)
        elif (death := calls.death_before(former, send)) is not None:
            deaths.append(death)
    if len(deaths) > REPEATS_AFTER_DEATH_MAX:
        why = f"sent again after {len(deaths)} deaths of its sender; the third ends it"
        yield _violation("INV7", key, why, [send.event for send in sends] + deaths)


def _sure_endings(history: History, limits: Limits) -> dict[tuple[str, str], Event]:
    """Return by receipt and purchase the first final receipt that surely lasted."""
    lives, places = history.view(Lives), history.view(Calls).partition_of
    found: dict[tuple[str, str], Event] = {}
    for event in history.kind("kept"):
        place = (event["receipt"], event["purchase"])
        if place in found:
            continue
        partition = places.get(event["receipt"], -1)
        tenure = lives.tenure("dispatch", partition, event["epoch"])
        if tenure is None:
            sure = lives.trouble(event["by"], 0, event["at"]) is None
        else:
            sure = event["at"] < lives.sure_until(tenure, limits.session_ms)
        if sure:
            found[place] = event
    return found


def _bought_twice(
    history: History,
    calls: Calls,
    found: Mapping[tuple[str, int], Sequence[Settled]],
    limits: Limits,
) -> Iterator[Violation]:
    """A second purchase of a question opens only after the first one failed."""
    endings = _grouped(history.kind("kept", "taken_over"), lambda event: event["receipt"])
    for receipt, claims in _openings(history, calls).items():
        for former, claimed in pairwise(claims):
            sends = [
                send
                for send in calls.by_receipt.get(receipt, ())
                if send.purchase == former["purchase"] and send.at < claimed["at"]
            ]
            ended = [
                event
                for event in endings.get(receipt, ())
                if event["purchase"] == former["purchase"] and event["at"] < claimed["at"]
            ]
            states = {event["state"] for event in ended}
            states |= {
                state
                for purchase, state in found.get((receipt, claimed["epoch"]), ())
                if purchase == former["purchase"]
            }
            if sends and not _may_buy_again(sends[-1], claimed, states, history, limits):
                why = (
                    f"bought a second time by {claimed['by']} although the first purchase had "
                    "not failed"
                )
                proof = [*sends[-1].story, *ended, claimed]
                yield _violation("INV7", receipt, why, proof, "receipt")


def _openings(history: History, calls: Calls) -> dict[str, list[Event]]:
    """Return the claims that opened each receipt's purchases, in order.

    One of a former owner that sent nothing is refused by its epoch: it opened nothing.
    """
    openings: dict[str, list[Event]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for event in history.kind("claimed"):
        receipt = event["receipt"]
        if (receipt, event["purchase"]) in seen:
            continue
        last = openings[receipt][-1] if openings[receipt] else event
        if event["epoch"] >= last["epoch"] or calls.leases[event["lease"]].sent is not None:
            seen.add((receipt, event["purchase"]))
            openings[receipt].append(event)
    return openings


def _may_buy_again(
    last: Send, claimed: Event, states: set[str], history: History, limits: Limits
) -> bool:
    if "failed" in states or (limits.asked_again and "completed" in states):
        return True
    if "completed" in states or last.heard is None or last.open_at(claimed["at"]):
        return False
    # It may have failed durably, and its owner not have come to say so.
    lives = history.view(Lives)
    begin, end = last.at, claimed["at"]
    in_trouble = lives.death(last.by, begin, end) or lives.trouble(last.by, begin, end)
    could_end = limits.asked_again or last.heard["outcome"] != "answered"
    return in_trouble is not None and could_end


def _unannounced(history: History, calls: Calls) -> Iterator[Violation]:
    for key, arrived in _grouped(history.kind("arrived"), lambda event: event["key"]).items():
        sends = calls.by_key.get(key, [])
        for number, event in enumerate(arrived):
            if number >= len(sends) or event["at"] < sends[number].at:
                why = (
                    f"request {number + 1} under this key came to the provider, and "
                    f"{min(len(sends), number)} were announced before it"
                )
                told = [send.event for send in sends]
                yield _violation("INV7", key, why, [*told, *arrived[: number + 1]])
                break


@invariant(
    "INV8",
    """Two requests of one purchase are never under way at the same time, unless whoever sent the
    first counts as dead: killed, or frozen or cut off until its lease was over.""",
    speaks_of={"sent"},
)
def together(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV8."""
    calls = history.view(Calls)
    for key, sends in calls.by_key.items():
        for place, send in enumerate(sends[1:], start=1):
            for former in sends[:place]:
                if former.open_at(send.at) and calls.death_before(former, send) is None:
                    why = (
                        f"{send.by} sent while the send of {former.by} was under way, whose "
                        "sender had not died and whose lease was not lost by a fault"
                    )
                    yield _violation("INV8", key, why, [*former.story, *send.story])


@invariant(
    "INV9",
    """An Idempotency-Key stands for one question of one purchase, whatever crashes: the same key
    always comes with the same body, a purchase has one key, and the provider books it once.""",
    speaks_of={"sent"},
)
def keys(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV9."""
    yield from _one_to_one(
        history.kind("sent"),
        lambda event: event["key"],
        lambda event: (event["receipt"], event["purchase"]),
        "key",
        "one key was sent for two purchases: the provider answers the second with the first",
    )
    yield from _one_to_one(
        history.kind("sent"),
        lambda event: (event["receipt"], event["purchase"]),
        lambda event: event["key"],
        "purchase",
        "one purchase was sent under two keys: the provider books both",
    )
    yield from _one_to_one(
        history.kind("arrived"),
        lambda event: event["key"],
        lambda event: (event["tool"], event["digest"]),
        "key",
        "two requests of this key came with different bodies",
    )
    for event in history.kind("arrived"):
        if not event["key"]:
            yield _violation("INV9", "(none)", "a request came without a key", [event])
    for key, booked in _grouped(history.kind("booked"), lambda event: event["key"]).items():
        if len(booked) > 1:
            yield _violation("INV9", key, f"booked {len(booked)} times", booked)


def _one_to_one(
    events: list[Event],
    one: Callable[[Event], object],
    other: Callable[[Event], object],
    noun: str,
    why: str,
) -> Iterator[Violation]:
    first: dict[object, Event] = {}
    for event in events:
        known = first.setdefault(one(event), event)
        if other(known) != other(event):
            yield _violation("INV9", str(one(event)), why, [known, event], noun)


@invariant(
    "INV10",
    """Where the provider honours no Idempotency-Key, a question is never sent again after a send
    that it may have booked. It did not book what ended as 429, or what no connection was made for.""",
    speaks_of={"sent"},
)
def unkeyed(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV10."""
    calls = history.view(Calls)
    groups = calls.by_key if limits.asked_again else calls.by_receipt
    noun = "key" if limits.asked_again else "receipt"
    for name, sends in groups.items():
        if sends[0].event["idempotent"]:
            continue
        for former, send in pairwise(sends):
            if former.open_at(send.at) or former.maybe_booked:
                why = f"sent again by {send.by} after a send that may have been booked"
                yield _violation("INV10", name, why, [*former.story, *send.story], noun)
                break


@invariant(
    "INV11",
    """A provider honours an Idempotency-Key for a while only; the last send under a key comes
    before that time is over, counted from the first that may have reached the provider.""",
    speaks_of={"sent"},
    bounded_by={"key_lifetime_ms"},
)
def lifetimes(history: History, finals: Finals, limits: Limits) -> Iterator[Violation]:
    """INV11."""
    for key, sends in history.view(Calls).by_key.items():
        lifetime_ms = limits.key_lifetime_ms.get(sends[0].event["tool"])
        reached = [send for send in sends if send.maybe_reached]
        if lifetime_ms is None or len(reached) < 2:
            continue
        age_ms = (reached[-1].at - reached[0].at) / MS
        if age_ms >= lifetime_ms:
            why = f"sent {age_ms:,.0f} ms after its first send; its key lives {lifetime_ms:,} ms"
            yield _violation("INV11", key, why, [reached[0].event, reached[-1].event])


def _grouped(events: Iterable[Event], by: Callable[[Event], str]) -> dict[str, list[Event]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        groups[by(event)].append(event)
    return groups


def _violation(
    code: str, name: str, why: str, events: Iterable[Event], noun: str = "key"
) -> Violation:
    return Violation(code, f"{noun} {name}", why, in_order(events))


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events in order, each once: two sends may be proven by the same one."""
    distinct = {id(event): event for event in events}.values()
    return tuple(sorted(distinct, key=lambda event: int(event["at"])))
