"""Where in a play something stands, so that an error can say `play.py:24`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import pydantic
from pydantic import ValidationError

from rowmill.errors import PlayError

_NOT_PLAYS = (os.path.dirname(__file__) + os.sep, os.path.dirname(pydantic.__file__) + os.sep)
_SHOWN_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Site:
    """A line of a file. Prints as `file:line`, relative to the working directory where below it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}"

    def refuse(self, problem: str) -> Never:
        """Raise PlayError: `file:line: problem`."""
        raise PlayError(f"{self}: {problem}")


def here() -> Site:
    """Return the line of the play that called into this package: the first frame outside it."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_NOT_PLAYS) and frame.f_back is not None:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def shown(file: str | os.PathLike[str]) -> str:
    """Return the path as a person writes it: relative where it lies below the working directory."""
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def first_problem(error: ValidationError) -> str:
    """Return what pydantic found first, as `field: what is wrong (got …)`.

    >>> from pydantic import BaseModel
    >>> class Profile(BaseModel):
    ...     employees: int
    >>> try:
    ...     Profile.model_validate({"employees": "many"})
    ... except ValidationError as error:
    ...     print(first_problem(error))
    employees: input should be a valid integer, unable to parse string as an integer (got 'many')
    """
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    # Headers may hold what should not be read aloud.
    unsaid = first["type"] == "missing" or "headers" in first["loc"]
    got = "" if unsaid else f" (got {brief(first['input'])})"
    return f"{place}: {message}{got}" if place else f"{message}{got}"


def brief(value: Any) -> str:
    """Return `repr(value)`, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


def closest(name: str, known: list[str]) -> str:
    """Return ` Did you mean "x"?`, or nothing where no known name is near.

    >>> closest("Simbol", ["Security", "Symbol"]), closest("zzz", ["Symbol"])
    (' Did you mean "Symbol"?', '')
    """
    import difflib  # seldom needed, and it costs 3 ms of every start

    folded = {candidate.casefold().strip(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold().strip(), list(folded), n=1, cutoff=0.6)
    return f' Did you mean "{folded[near[0]]}"?' if near else ""
