"""Whatever is given as --param and --input: a value of its type, or a PlayError that names it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Literal

import msgspec
from hypothesis import example, given
from pydantic import Field

from rowmill.errors import PlayError
from rowmill.plays.params import Params, bound_to
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import ODD_NUMBERS, ODD_TEXTS, TOKENS


class Size(Enum):
    """Something to choose from."""

    SMALL = "small"
    LARGE = "large"


KINDS: dict[str, object] = {
    "text": str, "whole": int, "number": float, "exact": Decimal, "flag": bool, "day": date,
    "choice": Literal["a", "b"], "size": Size, "maybe": int | None, "some": list[int],
    "bounded": "bounded",
}  # fmt: skip
TEXTS = (
    *ODD_TEXTS, *map(str, ODD_NUMBERS), *(token.decode("latin-1") for token in TOKENS), "yes", "off",
    "small", "a", "2026-12-02", "\udc80", "9" * 5_000, "1_000", " 7 ", "0x10", "1e5",
)  # fmt: skip


NAMES = [*KINDS, *KINDS, *KINDS, "unknown", "", "x" * 300]


def value_of(drawn: bytes) -> dict[str, str]:
    """Return a parameter that follows from drawn bytes."""
    text = TEXTS[drawn[1] % len(TEXTS)] + drawn[2 : 2 + drawn[2] % 4].decode("latin-1")
    return {NAMES[drawn[0] % len(NAMES)]: text}


def bind(given_: dict[str, str]) -> None:
    """A play that declares every kind is loaded with the values, or refuses one of them."""
    try:
        with bound_to(given_) as binding:
            declare()
            binding.check_all_known()
            values = binding.values()
    except PlayError as error:
        check_words(error)
    else:
        again = msgspec.json.decode(msgspec.json.encode(values))
        assert again == values, "they are recorded as they are"


def declare() -> None:
    """Declare as a play does, when it is loaded."""

    class Options(Params):
        text: str = "x"
        whole: int = 1
        number: float = 1.5
        exact: Decimal = Decimal("0.5")
        flag: bool = False
        day: date = date(2026, 12, 2)
        choice: Literal["a", "b"] = "a"
        size: Size = Size.SMALL
        maybe: int | None = None
        bounded: int = Field(1, ge=1, le=10)

    assert Options.text is not None


def check_words(error: PlayError) -> None:
    words = str(error)
    assert "--param" in words
    assert len(words) < 1_000
    assert words.encode()


@fuzzed
@given(several(value_of))
@example([{"number": "nan"}])  # was recorded as null
@example([{"text": "\udc80"}])  # UnicodeEncodeError when the run was recorded
def test_any_value_is_taken_or_refused_by_name(drawn: Sequence[dict[str, str]]) -> None:
    def look() -> None:
        for given_ in drawn:
            bind(given_)

    bounded(look)
