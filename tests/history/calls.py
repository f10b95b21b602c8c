"""Calls: leases, what was sent under them, what was heard, and when a sender counts as dead."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

from rowmill.streams.dispatch.heartbeat import ALLOWANCE
from tests.history.events import Event, History
from tests.history.lives import EVER, MS, Lives


@dataclass(slots=True)
class Lease:
    """A lease of one attempt. Events are None where they did not happen, or were not told."""

    id: str
    receipt: str
    by: str
    claimed: Event | None = None
    running: Event | None = None
    sent: Event | None = None
    heard: Event | None = None
    renewed: list[Event] = field(default_factory=list)
    taken_over: Event | None = None

    def expires(self, at: int) -> int:
        """Return when it ends, as its holder knew at that time; EVER where it never was claimed."""
        ends = EVER if self.claimed is None else int(self.claimed["expires"])
        for event in self.renewed:
            if event["at"] <= at:
                ends = max(ends, event["expires"])
        return ends

    def over_at(self, at: int) -> bool:
        """Say whether it was over for everybody at that time.

        Its holder acts under it for 95 % of its length only: the rest is given away for clocks that do
        not run alike, so who waits for its end on another clock may come that much early.
        """
        return self.claimed is not None and at >= self.over(at)

    def over(self, at: int) -> float:
        """Return when it is, as was known at that time."""
        if self.claimed is None:
            return EVER
        length = int(self.claimed["expires"]) - int(self.claimed["at"])
        return self.expires(at) - ALLOWANCE * length


@dataclass(slots=True)
class Send:
    """One request that left, or is about to."""

    event: Event
    at: int
    by: str
    key: str
    receipt: str
    purchase: str
    lane: str
    lease: Lease
    heard: Event | None = None

    def open_at(self, at: int) -> bool:
        """Say whether its end was not known to its sender at that time."""
        return self.heard is None or self.heard["at"] > at

    @property
    def maybe_reached(self) -> bool:
        """False where its sender knows that nothing came to the provider."""
        return self.heard is None or self.heard["reached"]

    @property
    def maybe_booked(self) -> bool:
        """False where its sender knows that the provider did not act on it."""
        return self.heard is None or self.heard["maybe_booked"]

    @property
    def story(self) -> list[Event]:
        """Its events that prove something, in order."""
        found = [self.lease.claimed, self.event, self.heard]
        return [event for event in found if event is not None]


class Calls:
    """All leases and sends of a history."""

    def __init__(self, history: History) -> None:
        self.leases: dict[str, Lease] = {}
        self.by_key: dict[str, list[Send]] = defaultdict(list)
        self.by_receipt: dict[str, list[Send]] = defaultdict(list)
        self.by_lane: dict[tuple[str, str], list[Send]] = defaultdict(list)
        """Of each process and lane."""
        self.sends: list[Event] = []
        """What was sent, by whom ever, each at the time that it was decided."""
        self.partition_of: dict[str, int] = {}
        """Of each receipt."""
        self._lives = history.view(Lives)
        for event in history.kind("claimed", "running", "renewed", "sent", "heard", "taken_over"):
            self._take(event)
        self.sends.sort(key=lambda event: int(event["at"]))

    def _take(self, event: Event) -> None:
        lease = self.leases.get(event["lease"])
        if lease is None:
            lease = Lease(event["lease"], event["receipt"], event["by"])
            self.leases[event["lease"]] = lease
        match event["event"]:
            case "claimed":
                lease.claimed = event
                self.partition_of[event["receipt"]] = event["partition"]
            case "running":
                lease.running = event
            case "renewed":
                lease.renewed.append(event)
            case "taken_over":
                lease.taken_over = event
            case "heard":
                lease.heard = event
                for send in reversed(self.by_key.get(event["key"], ())):
                    if send.lease is lease and send.heard is None:
                        send.heard = event
            case "sent":
                self._note_send(event, lease)

    def _note_send(self, event: Event, lease: Lease) -> None:
        lease.sent = lease.sent or event
        key, receipt, by = event["key"], event["receipt"], event["by"]
        # What counts is when it was decided: a process may stand still before it comes to say so.
        event = {**event, "at": min(event["at"], event.get("left", EVER) + MS)}
        self.sends.append(event)
        send = Send(event, event["at"], by, key, receipt, event["purchase"], event["lane"], lease)
        self.by_key[key].append(send)
        self.by_receipt[receipt].append(send)
        self.by_lane[by, send.lane].append(send)

    def of_lane(self, lane: str) -> list[Send]:
        """Return what all processes sent in a lane, in order."""
        of_all = (sends for (_, name), sends in self.by_lane.items() if name == lane)
        return list(heapq.merge(*of_all, key=lambda send: send.at))

    def death_before(self, send: Send, following: Send) -> Event | None:
        """Return what proves that a send's owner counted as dead when it was sent again.

        Who sends again has waited for that before it took the receipt over: what is heard or renewed
        in between is too late.
        """
        decided = following.lease.claimed, send.lease.taken_over
        times = [following.at, *(event["at"] for event in decided if event is not None)]
        found = (self.death(send, at) for at in times if at <= following.at)
        return next((event for event in found if event is not None), None)

    def death(self, send: Send, before: int) -> Event | None:
        """Return what proves that a send's owner counted as dead before that time.

        Killed after it; or its lease was over while a fault was on (frozen, cut off, broker away).
        """
        killed = self._lives.death(send.by, send.at, before)
        if killed is not None:
            return killed
        if not send.lease.over_at(before):
            return None
        begin = send.at if send.lease.claimed is None else send.lease.claimed["at"]
        trouble = self._lives.trouble(send.by, begin, before)
        return None if trouble is None else trouble.event
