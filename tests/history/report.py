"""What a checked run says: which promise was broken, for which row or key, and the proof."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tests.history.events import Event, History
from tests.history.invariant import Invariant, Violation
from tests.history.lives import MS

SHOWN_MAX = 3
"""Violations of one invariant that are shown; the others are counted."""

FIELD_MAX = 60
"""Characters of one field of an event."""

WIDTH = 110


@dataclass(frozen=True)
class Report:
    """The outcome of a check. `skipped`, `left_out`: code -> why it was not checked."""

    violations: list[Violation]
    checked: list[Invariant]
    skipped: dict[str, str]
    left_out: dict[str, str]
    history: History

    @property
    def ok(self) -> bool:
        """True where no promise was found broken."""
        return not self.violations

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        broken = defaultdict(list)
        for violation in self.violations:
            broken[violation.code].append(violation)
        what = f"{len(self.checked)} promises over {len(self.history.events):,} events"
        if broken:
            yield f"{len(broken)} of {what} are broken."
        else:
            yield f"{what}: none is found broken."
        for invariant in self.checked:
            if invariant.code in broken:
                yield ""
                yield from _broken(invariant, broken[invariant.code])
        if broken:
            yield ""
            yield "Times count from the first event shown; docs/history.md says what each event means."
        yield ""
        held = [invariant.code for invariant in self.checked if invariant.code not in broken]
        yield from _wrapped("Held: ", ", ".join(_in_order(held)) or "none")
        yield from _reasons("Not checked in this run", self.skipped)
        yield from _reasons("Left out, until it is built", self.left_out)


def _broken(invariant: Invariant, violations: list[Violation]) -> Iterator[str]:
    yield from _wrapped(f"{invariant.code}, the promise: ", invariant.statement)
    for violation in violations[:SHOWN_MAX]:
        yield ""
        yield from _wrapped("  broken for ", f"{violation.subject}: {violation.why}", indent=4)
        yield from _proof(violation.events)
    if len(violations) > SHOWN_MAX:
        subjects = Counter(violation.subject for violation in violations)
        more = f"and {len(violations) - SHOWN_MAX:,} more times, for {len(subjects):,} in all"
        yield f"\n  {more}"


def _proof(events: tuple[Event, ...]) -> Iterator[str]:
    if not events:
        return
    began = events[0]["at"]
    width = max(len(str(event["by"])) for event in events)
    for event in events:
        ms = (event["at"] - began) / MS
        said = " ".join(f"{name}={_short(name, value, began)}" for name, value in _fields(event))
        yield f"    {ms:>12,.3f} ms  {event['by']:<{width}}  {event['event']:<10}  {said}".rstrip()


def _fields(event: Event) -> Iterator[tuple[str, object]]:
    return (pair for pair in event.items() if pair[0] not in ("at", "by", "event"))


def _short(name: str, value: object, began: int) -> str:
    if name in ("expires", "until") and isinstance(value, int):
        return f"{(value - began) / MS:,.3f}ms"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= FIELD_MAX else f"{text[:FIELD_MAX]}..."


def _reasons(title: str, reasons: dict[str, str]) -> Iterator[str]:
    if reasons:
        yield f"{title}:"
        for code in _in_order(reasons):
            yield from _wrapped(f"  {code}: ", reasons[code], indent=4)


def _wrapped(first: str, text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        first + text,
        WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _in_order(codes: list[str] | dict[str, str]) -> list[str]:
    return sorted(codes, key=lambda code: int(code.removeprefix("INV")))
