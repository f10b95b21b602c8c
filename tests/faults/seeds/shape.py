"""What a seed feeds: a play of three columns, rows with duplicates and shared questions, and some that a
provider never answers well. All of it follows from the shape's number, so a calm twin has the same."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

SHAPES = 4

COLUMNS = ["first", "second", "third"]

PACED_CALLS = 8
PACED_CONCURRENCY = 4
FREE_CONCURRENCY = 8
BLIND_CONCURRENCY = 4
"""Less than the open rows would take, so that calls wait for permits and slots while faults come."""

SPOILS = ("refused", "stored_500", "too_large", "endless", "deep", "secret")
"""How the provider answers the first question of some rows, each time: F34, F36 and F37."""

PLAY = f'''
from rowmill import Dataset, Params, Provider, Tool, bearer, col, rate
from rowmill.plays.specs import RetryPolicy


class Options(Params):
    base_url: str = "http://127.0.0.1:1"


patient = RetryPolicy(attempts=12, backoff_s=0.1, backoff_s_max=0.6)
key = bearer("CANARY")
free = Provider(
    "free", base_url=Options.base_url, auth=key, concurrency={FREE_CONCURRENCY}, retry=patient
)
paced = Provider(
    "paced", base_url=Options.base_url, auth=key, limits=[rate("{PACED_CALLS}/s")],
    concurrency={PACED_CONCURRENCY}, retry=patient,
)
blind = Provider(
    "blind", base_url=Options.base_url, auth=key, concurrency={BLIND_CONCURRENCY}, retry=patient
)
first = Tool("free.first", free, post="/first", timeout_s=5)
second = Tool("paced.second", paced, post="/second", timeout_s=5)
third = Tool("blind.third", blind, post="/third", timeout_s=5, idempotent=False)


async def ask_second(row, ctx):
    return await ctx.tools.execute(second, {{"group": row["first"]["group"]}})


async def ask_third(row, ctx):
    return await ctx.tools.execute(third, {{"label": row["second"]["label"], "id": row["id"]}})


seeded = (
    Dataset("seeded", key="id")
    .with_column("first", first(q=col("id")))
    .with_column("second", ask_second)
    .with_column("third", ask_third, when=lambda row: row["blind"] == "yes", on_error="continue")
)
'''


@dataclass(frozen=True)
class Shape:
    """One input. `rows` lines, of which some are duplicates and some spoilt."""

    number: int
    rows: int = 240

    @cached_property
    def lines(self) -> list[dict[str, str]]:
        """The input, in order."""
        chance = random.Random(f"shape {self.number}")
        lines: list[dict[str, str]] = []
        for index in range(self.rows):
            if lines and chance.random() < 0.05:
                lines.append(dict(chance.choice(lines)))
                continue
            spoil = chance.choice(SPOILS) if chance.random() < 0.04 else "good"
            blind = "yes" if chance.random() < 0.2 else "no"
            lines.append({"id": f"{spoil}-{self.number}-{index:05d}", "blind": blind})
        return lines

    def write(self, path: Path) -> Path:
        """Write the input as a CSV; return its path."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["id", "blind"])
            writer.writeheader()
            writer.writerows(self.lines)
        return path


def spoil_of(question: dict[str, Any]) -> str:
    """Return how a first question is answered: `good`, or a spoil."""
    return str(question.get("q", "good")).partition("-")[0]


def answer_of(tool: str, question: dict[str, Any]) -> Any:
    """Return what the provider answers a good question: a pure function, by the tool's id or path."""
    path = tool.rpartition(".")[2].strip("/")
    if path == "first":
        return {"q": question["q"], "group": _number(question["q"]) % 60}
    if path == "second":
        return {"group": question["group"], "label": f"g{_number(str(question['group'])):x}"}
    return {"id": question["id"], "sum": _number(f"{question['label']}/{question['id']}")}


def cell_of(values: dict[str, Any], column: str) -> Any:
    """Return the value of a cell of a completed row; None where it is skipped."""
    first = answer_of("first", {"q": values["id"]})
    if column == "first":
        return first
    second = answer_of("second", {"group": first["group"]})
    if column == "second":
        return second
    if values["blind"] != "yes":
        return None
    return answer_of("third", {"label": second["label"], "id": values["id"]})


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=5).digest())
