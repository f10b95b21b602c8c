"""A history as `docs/history.md` describes it: read from its folder, in one order, with indexes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

Event = dict[str, Any]
"""One line, as in `docs/history.md`, plus `by`: who wrote it (`dispatch-4711`)."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class TornLine(ValueError):
    """A line of a history that is no JSON object, and is not the last of its file."""

    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"{path}, line {line}: no event. Only the last line may be torn.")


class History:
    """What all processes did, sorted by `at`; of equal times, in the order they were written."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self._views: dict[Callable[[History], Any], Any] = {}

    def view(self, make: Callable[[History], T]) -> T:
        """Return what `make` makes of this history, made once: the indexes of other modules."""
        if make not in self._views:
            self._views[make] = make(self)
        found: T = self._views[make]
        return found

    def before(self, name: str) -> History:
        """Return what happened before the first event of that name; all of it without one."""
        named = self.kind(name)
        if not named:
            return self
        return History([event for event in self.events if event["at"] < named[0]["at"]])

    @classmethod
    def read(cls, folder: Path) -> History:
        """Merge the folder's `{role}-{pid}.jsonl`. A torn last line is no error: a kill tears it.

        Raises: TornLine.
        """
        events: list[Event] = []
        for path in sorted(folder.glob("*.jsonl")):
            events += _lines(path)
        return cls.of(events)

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """Put events in order, each with `at`, `by` and `event`."""
        return cls(sorted(events, key=itemgetter("at")))

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        return _grouped(self.events, itemgetter("event"))

    def kind(self, *names: str) -> list[Event]:
        """Return all events of these names, in order."""
        if len(names) == 1:
            return self._by_kind.get(names[0], [])
        return sorted(
            (event for name in names for event in self._by_kind.get(name, [])),
            key=itemgetter("at"),
        )

    @cached_property
    def by_receipt(self) -> dict[str, list[Event]]:
        """The events of each receipt, in order."""
        return _grouped(
            (event for event in self.events if "receipt" in event), itemgetter("receipt")
        )

    @cached_property
    def by_process(self) -> dict[str, list[Event]]:
        """The events of each process, in order."""
        return _grouped(self.events, itemgetter("by"))

    @cached_property
    def sends(self) -> dict[str, list[Event]]:
        """The `sent` events of each idempotency key, in order."""
        return _grouped(self.kind("sent"), itemgetter("key"))


def _grouped(events: Iterable[Event], by: Callable[[Event], Any]) -> dict[Any, list[Event]]:
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        groups[by(event)].append(event)
    return dict(groups)


def _lines(path: Path) -> list[Event]:
    lines = path.read_bytes().split(b"\n")
    events = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            event = _decode(line)
        except msgspec.DecodeError:
            if number < len(lines):
                raise TornLine(path, number) from None
            break
        event["by"] = path.stem
        events.append(event)
    return events
