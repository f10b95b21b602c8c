"""How deep a JSON value is nested. Python recurses over JSON, and gives up after some 900 levels."""

from __future__ import annotations

from typing import Any


def is_deeper(value: Any, levels: int) -> bool:
    """Say whether lists and objects stand in each other more than `levels` deep.

    >>> is_deeper([[1]], 1), is_deeper([[1]], 2)
    (True, False)
    """
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return any(isinstance(value, dict | list) for value in level)


def may_be_deeper(text: bytes, levels: int) -> bool:
    """Say whether the value that JSON `text` holds may be deeper: cheap, and never wrong with no."""
    return text.count(b"[") + text.count(b"{") > levels
