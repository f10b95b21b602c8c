"""What the practice provider answers."""

from __future__ import annotations

import csv
from pathlib import Path

from rowmill.ops.provider import answers

EXAMPLES = Path(__file__).parents[4] / "examples" / "sp500" / "sp500-constituents.csv"


def test_an_answer_depends_on_the_question_alone_and_never_changes() -> None:
    """These values are what demos, tests and benchmarks of other versions saw."""
    assert answers.company("MMM") == {
        "symbol": "MMM",
        "name": "MMM Harbor Stone SA",
        "employees": 308_603,
        "founded": 1956,
        "city": "Essen",
        "country": "DE",
    }
    assert answers.domain("MMM Harbor Stone SA")["domain"] == "mmm-harbor-stone-sa-68fe1c6f.example"
    assert answers.sector("Energy")["companies"] == 3763


def test_no_two_companies_share_a_name_or_a_domain() -> None:
    with EXAMPLES.open(newline="", encoding="utf-8") as file:
        symbols = [row["Symbol"] for row in csv.DictReader(file)]
    names = {answers.company(symbol)["name"] for symbol in symbols}
    domains = {answers.domain(name)["domain"] for name in names}
    assert len(symbols) == len(names) == len(domains) == 503


def test_any_text_has_a_domain() -> None:
    for name in ("😀", "---", "Ünïcode ¿", "x" * 5_000, "a\nb"):
        found = answers.domain(name)["domain"]
        assert found.isascii()
        assert found.endswith(".example")
        assert len(found.split(".")[0]) <= 63  # the limit of one label, RFC 1035
