"""Text for a terminal: nothing that came from data may move the cursor, colour or link."""

from __future__ import annotations

import unicodedata


def plain(text: str, *, chars_max: int = 500) -> str:
    """Return `text` on one line without control characters, cut at `chars_max`.

    Line breaks become spaces, other controls (C0, C1, bidirectional overrides) `?`.
    """
    shown = "".join(_shown(char) for char in " ".join(text.split()))
    return shown if len(shown) <= chars_max else shown[: chars_max - 1] + "…"


def _shown(char: str) -> str:
    return "?" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co") else char


def clock(seconds: float) -> str:
    """Return a length of time as m:ss or h:mm:ss."""
    whole = round(seconds)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def amount(spent: float) -> str:
    """Return money with two digits, more where two would show nothing."""
    return f"{spent:.2f}" if spent == 0 or spent >= 0.01 else f"{spent:.6f}".rstrip("0")
