"""What is worked on: the play, its input, and the run's name; the same in every process."""

from __future__ import annotations

from pathlib import Path

PLAY = Path(__file__).with_name("two_calls_play.py")
DATASET = "enriched"
RUN = "bench"
CALLS_PER_ROW = 2


def symbols(rows: int) -> list[str]:
    """Return the symbols of `rows` (0 or more) input rows, all different."""
    return [f"SYM{index:06d}" for index in range(rows)]
