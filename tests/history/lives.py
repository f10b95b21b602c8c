"""Lives: which process died when, which was in trouble, and who owned a partition since when."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tests.history.events import Event, History

MS = 1_000_000
"""Nanoseconds of a millisecond."""

EVER = 1 << 62
"""Later than any event."""

RECOVERY_NS = 30_000 * MS
"""How long a new owner's recovery may have taken, where nothing tells when it began."""

_BEGINS = {"fault": "healed", "frozen": "thawed", "cut": "mended"}
_OF_ALL = ("kafka", "all")
_TARGETS_BY_CODE = (
    (11, "all"),
    (23, "kafka"),
    (27, "all"),
    (29, "sheet"),
    (31, "kafka"),
    (39, "provider"),
)
"""Up to which F code a fault hits whom."""

_OWN_FAULT = 1
"""Exit code of a fault of the code: it excuses nothing."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault from its beginning to its end, in ns."""

    begin: int
    end: int
    target: str
    event: Event


@dataclass(slots=True)
class Tenure:
    """One process's ownership of a partition. `end`: when it gave it up itself, else EVER.

    `next`: the tenure that followed, of whichever process.
    """

    by: str
    partition: int
    epoch: int
    begin: int
    event: Event
    end: int = EVER
    next: Tenure | None = None


class Lives:
    """Deaths, troubles and tenures of a history."""

    def __init__(self, history: History) -> None:
        self._deaths: dict[str, list[Event]] = defaultdict(list)
        for event in history.kind("killed", "ended"):
            if event["event"] == "killed" or event.get("code") not in (0, _OWN_FAULT):
                self._deaths[event["target"]].append(event)
        ended = {event["target"] for event in history.kind("ended")}
        self._note_restarts(history.kind("started"), ended)
        self.troubles = _troubles(history)
        self._of: dict[str, list[Trouble]] = {}
        self.tenures = _tenures(history)
        self._tenure = {
            (role_of(tenure.by), tenure.partition, tenure.epoch): tenure
            for row in self.tenures.values()
            for tenure in row
        }

    def _note_restarts(self, started: list[Event], ended: set[str]) -> None:
        """Whoever holds an instance's data directory proves that its former holder is dead."""
        last: dict[tuple[str, str], Event] = {}
        for event in started:
            place = (role_of(event["by"]), str(event.get("instance", event["by"])))
            former = last.get(place)
            if former is not None and former["by"] != event["by"] and former["by"] not in ended:
                self._deaths[former["by"]].append(event)
            last[place] = event

    def death(self, by: str, begin: int, end: int) -> Event | None:
        """Return what shows that a process died after `begin`, not later than `end`."""
        for event in self._deaths.get(by, ()):
            if begin < event["at"] <= end:
                return event
        return None

    def trouble(self, by: str, begin: int, end: int) -> Trouble | None:
        """Return the first fault of a process, or of the broker, that fell into that time."""
        for trouble in self._troubles_of(by):
            if trouble.begin <= end and trouble.end >= begin:
                return trouble
        return None

    def _troubles_of(self, by: str) -> list[Trouble]:
        found = self._of.get(by)
        if found is None:
            targets = (by, role_of(by), *_OF_ALL)
            found = [trouble for trouble in self.troubles if trouble.target in targets]
            self._of[by] = found
        return found

    def tenure(self, role: str, partition: int, epoch: int) -> Tenure | None:
        """Return who owned a partition under that epoch."""
        return self._tenure.get((role, partition, epoch))

    def sure_until(self, tenure: Tenure, session_ms: int) -> int:
        """Return until when all that this owner knew to be durable was seen by the next one.

        One that was cut off or frozen may hear of an acknowledgement after its successor has read
        the changelog: from its fault on nothing is sure.
        """
        successor = tenure.next
        if successor is None:
            return EVER
        clean = successor.by == tenure.by or tenure.end <= successor.begin
        if clean or self.death(tenure.by, tenure.begin, successor.begin):
            return successor.begin
        trouble = self.trouble(tenure.by, tenure.begin, successor.begin)
        if trouble is not None:
            return trouble.begin
        return successor.begin - session_ms * MS - RECOVERY_NS


def role_of(by: str) -> str:
    """Return the role of `role-pid`."""
    return by.rpartition("-")[0]


def target_of(event: Event) -> str:
    """Return whom a fault hits: a process, a role, `kafka`, `sheet`, `provider` or `all`.

    A fault that names nobody is known by its code (section 3 of the quality document).
    """
    target = str(event.get("target", "all"))
    number = str(event.get("code", "")).removeprefix("F")
    if target != "all" or not number.isdigit():
        return target
    for last, whom in _TARGETS_BY_CODE:
        if int(number) <= last:
            return whom
    return target


def _troubles(history: History) -> list[Trouble]:
    begun: dict[tuple[str, str, str], Event] = {}
    troubles = []
    ends = {end: begin for begin, end in _BEGINS.items()}
    for event in history.kind(*_BEGINS, *ends):
        name: str = event["event"]
        place = (ends.get(name, name), str(event.get("kind", "")), target_of(event))
        if name in _BEGINS:
            begun.setdefault(place, event)
        elif (began := begun.pop(place, None)) is not None:
            troubles.append(Trouble(began["at"], event["at"], place[2], began))
    troubles += [Trouble(e["at"], EVER, place[2], e) for place, e in begun.items()]
    return sorted(troubles, key=lambda trouble: trouble.begin)


def _tenures(history: History) -> dict[tuple[str, int], list[Tenure]]:
    found: dict[tuple[str, int], list[Tenure]] = defaultdict(list)
    current: dict[tuple[str, int], Tenure] = {}
    for event in history.kind("taken", "given_up"):
        by = event["by"]
        if event["event"] == "given_up":
            for partition in event["partitions"]:
                tenure = current.pop((by, partition), None)
                if tenure is not None:
                    tenure.end = event["at"]
            continue
        partition = event["partition"]
        tenure = Tenure(by, partition, event["epoch"], event["at"], event)
        current[by, partition] = tenure
        row = found[role_of(by), partition]
        if row:
            row[-1].next = tenure
        row.append(tenure)
    return dict(found)
