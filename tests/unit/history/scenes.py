"""Small histories by hand, and the registers of those that break a promise and those that keep all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.history.checker import check
from tests.history.events import Event, History
from tests.history.finals import Finals
from tests.history.invariant import Limits, Window
from tests.history.lives import MS
from tests.history.report import Report

LEASE_MS = 20_000


@dataclass
class Scene:
    """A history as it is told. Times in ms."""

    events: list[Event] = field(default_factory=list)
    finals: Finals = field(default_factory=Finals)
    limits: Limits = field(
        default_factory=lambda: Limits(
            windows={"paced": (Window(2, 1_000),)},
            concurrency={"paced": 2},
            key_lifetime_ms={"paced.tool": 60_000},
        )
    )

    def note(self, at_ms: float, by: str, event: str, **fields: Any) -> None:
        """Add an event."""
        self.events.append({"at": round(at_ms * MS), "by": by, "event": event, **fields})

    def start(self, by: str, at_ms: float = -1_000, epoch: int = 1, instance: str = "") -> None:
        """Let a process begin, and own partition 0."""
        told = {"role": by.rpartition("-")[0], "instance": instance or by}
        self.note(at_ms - 500, by, "started", **told)
        self.note(at_ms, by, "taken", partition=0, epoch=epoch)

    def send(
        self, at_ms: float, by: str = "dispatch-1", *, running: bool = True, **other: Any
    ) -> None:
        """Claim 3 ms before, and send. `other`: receipt, purchase, key, lease, epoch, lane, ..."""
        told: dict[str, Any] = {"receipt": "r1", "purchase": "p1", "lease": "l1", "epoch": 1}
        told |= {"lane": "free", "tool": "paced.tool"}
        told |= {name: value for name, value in other.items() if name in told}
        claimed = at_ms - 3
        expires = round((claimed + other.get("lease_ms", LEASE_MS)) * MS)
        self.note(claimed, by, "claimed", **told, partition=0, expires=expires)
        if running:
            lease = {"receipt": told["receipt"], "lease": told["lease"]}
            self.note(at_ms - 1, by, "running", **lease)
        key, idempotent = other.get("key", "k1"), other.get("idempotent", True)
        self.note(at_ms, by, "sent", **told, key=key, idempotent=idempotent)

    def hear(self, at_ms: float, by: str = "dispatch-1", **other: Any) -> None:
        """End a send: answered unless said otherwise."""
        told: dict[str, Any] = {"receipt": "r1", "key": "k1", "lease": "l1"}
        told |= {"outcome": "answered", "status": 200, "retryable": False}
        told |= {"maybe_booked": True, "reached": True}
        self.note(at_ms, by, "heard", **{**told, **other})

    def keep(self, at_ms: float, by: str = "dispatch-1", **other: Any) -> None:
        """Say that a final receipt is durable."""
        told: dict[str, Any] = {"receipt": "r1", "purchase": "p1", "state": "completed"}
        told["epoch"] = 1
        self.note(at_ms, by, "kept", **{**told, **other})

    def tell(self, at_ms: float, by: str = "dispatch-1", **other: Any) -> None:
        """Tell a row its answer."""
        told: dict[str, Any] = {"receipt": "r1", "run": "x", "row": "a", "call": "first/0"}
        told |= {"status": "completed", "epoch": 1}
        self.note(at_ms, by, "told", **{**told, **other})

    def end_row(self, at_ms: float, by: str = "rows-1", **other: Any) -> None:
        """Publish a row, and enter it 2 ms later."""
        told: dict[str, Any] = {"run": "x", "row": "a", "index": 0, "status": "completed"}
        told |= {"epoch": 1, "partition": 0}
        told |= {name: value for name, value in other.items() if name != "offset"}
        self.note(at_ms, by, "published", **told, offset=other.get("offset", 0))
        self.note(at_ms + 2, by, "entered", **told)

    def feed(self, at_ms: float, row: str = "a", index: int = 0, offset: int = 0) -> None:
        """Feed a row."""
        told = {"run": "x", "row": row, "index": index, "partition": 0, "offset": offset}
        self.note(at_ms, "main-1", "fed", **told)

    def done(self, at_ms: float, by: str, topic: str, *offsets: int) -> None:
        """Say that the work of records of partition 0 is durable."""
        for offset in offsets:
            self.note(at_ms, by, "done", topic=topic, partition=0, offset=offset)

    def commit(self, at_ms: float, by: str, topic: str, offset: int) -> None:
        """Commit, in partition 0."""
        self.note(at_ms, by, "committed", topic=topic, partition=0, offset=offset)

    def chunk(
        self, at_ms: float, number: int, span: list[int], *rows: list[Any], **other: Any
    ) -> None:
        """Write a chunk of one span."""
        by, had = other.get("by", "sink-1"), other.get("had", 0)
        told = {"sheet": "s", "chunk": number, "spans": [span]}
        self.note(at_ms, by, "writing", **told)
        counts = {"written": len(rows), "ignored": 0, "had": had}
        if other.get("ends", True):
            self.note(at_ms + 1, by, "wrote", **told, rows=list(rows), **counts)

    def history(self) -> History:
        """Return it in order."""
        return History.of(self.events)

    def report(self) -> Report:
        """Check it."""
        return check(self.history(), self.finals, limits=self.limits)


@dataclass(frozen=True)
class Tooth:
    """A scene that breaks a promise: its code, and a part of the subject that must be named."""

    code: str
    subject: str
    name: str
    build: Callable[[Scene], None]


TEETH: list[Tooth] = []
INNOCENT: list[tuple[str, Callable[[Scene], None]]] = []

Build = Callable[[Scene], None]


def breaks(code: str, subject: str) -> Callable[[Build], Build]:
    """Register a scene that breaks a promise."""

    def register(build: Build) -> Build:
        TEETH.append(Tooth(code, subject, build.__name__, build))
        return build

    return register


def innocent(build: Build) -> Build:
    """Register a scene that looks bad and breaks nothing."""
    INNOCENT.append((build.__name__, build))
    return build
