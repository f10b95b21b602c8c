"""Planted bugs: small changes of dispatch's own code, each of which the simulation must find.

A change replaces words of one function's source while it is planted. Where the words are not there
any more the bug does not fit the code: `Unplantable` says which, and somebody plants it anew.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.simulation.seeds import simulate

SEEDS_MAX = 1_000
"""Seeds within which a planted bug must be found."""


class Unplantable(Exception):
    """A planted bug's words are not in the code any more."""


@dataclass(frozen=True)
class Change:
    """In the source of `owner.name` each pair's first words become its second ones."""

    owner: Any
    name: str
    words: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, owner: Any, name: str, *words: tuple[str, str]) -> Change:
        """Return a change of a function."""
        return cls(owner, name, words)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Put the changed function in its place. Raises: Unplantable."""
        function = getattr(self.owner, self.name)
        with mock.patch.object(self.owner, self.name, self._changed(function)):
            yield

    def _changed(self, function: Any) -> Any:
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in self.words:
            if old not in source:
                raise Unplantable(f"{function.__qualname__} has no {old!r} any more")
            source = source.replace(old, new)
        flags = __future__.annotations.compiler_flag
        made: dict[str, Any] = {}
        code = compile(source, f"planted in {self.name}", "exec", flags)
        exec(code, function.__globals__, made)  # noqa: S102 - our own code, some words changed
        return made[self.name]


class Bug:
    """A planted bug. `breaks`: codes of which one must be reported; `changes`: all at once.

    `seed`: one that found it before, tried first where it takes many.
    """

    def __init__(
        self, name: str, breaks: tuple[str, ...], *changes: Change, seed: int | None = None
    ) -> None:
        self.name = name
        self.breaks = breaks
        self.changes = changes
        self.seed = seed

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let the bug be there."""
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change.planted())
            yield


@dataclass(frozen=True)
class Found:
    """Where a bug showed: the seed, the reported code, and how many seeds it took."""

    seed: int
    code: str
    seeds: int


def hunt(bug: Bug, seeds: Iterable[int]) -> Found | None:
    """Simulate seeds with the bug until one is reported as what it breaks; None: none was."""
    for number, seed in enumerate(seeds, start=1):
        with bug.planted():
            outcome = simulate(seed)
        for code in bug.breaks:
            if code in outcome.codes:
                return Found(seed, code, number)
    return None
