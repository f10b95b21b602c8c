"""What the practice provider answers: pure functions of the question, the same everywhere for ever.

Tests check cells against them. All domains end in `.example`, which nobody can own (RFC 2606).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

_FIRST = ("Amber", "Birch", "Cedar", "Delta", "Ember", "Fjord", "Granite", "Harbor")
_SECOND = ("Bridge", "Field", "Forge", "Gate", "Mill", "Ridge", "Stone", "Works")
_LEGAL = ("AG", "Corp", "Group", "Inc", "Ltd", "Plc", "SA", "SE")
_CITIES = ("Aarhus", "Boston", "Cork", "Denver", "Essen", "Fukuoka", "Graz", "Haifa")
_COUNTRIES = ("DK", "US", "IE", "US", "DE", "JP", "AT", "IL")


def _number(*parts: str) -> int:
    """Return 64 bits that depend on all of `parts` and on nothing else."""
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=8).digest())


def company(symbol: str) -> dict[str, Any]:
    """Return the profile of the company behind a symbol. Its name holds the symbol: no two share it."""
    bits = _number("company", symbol)
    city = bits >> 9 & 7
    return {
        "symbol": symbol,
        "name": f"{symbol} {_FIRST[bits & 7]} {_SECOND[bits >> 3 & 7]} {_LEGAL[bits >> 6 & 7]}",
        "employees": 10 + (bits >> 16) % 400_000,
        "founded": 1850 + (bits >> 40) % 170,
        "city": _CITIES[city],
        "country": _COUNTRIES[city],
    }


def domain(company_name: str) -> dict[str, Any]:
    """Return the domain of a company. A digest in it keeps names apart that read alike."""
    words = "".join(
        letter if letter.isascii() and letter.isalnum() else "-" for letter in company_name
    )
    label = "-".join(word for word in words.lower().split("-") if word)[:40].strip("-")
    bits = _number("domain", company_name)
    host = f"{label or 'company'}-{bits & 0xFFFF_FFFF:08x}.example"
    return {"company": company_name, "domain": host, "registered": 1990 + (bits >> 32) % 36}


def sector(name: str) -> dict[str, Any]:
    """Return statistics of a sector."""
    bits = _number("sector", name)
    return {
        "sector": name,
        "companies": 20 + bits % 5_000,
        "employees": 1_000 + (bits >> 16) % 9_000_000,
        "growth_percent": ((bits >> 40) % 400 - 100) / 10,
    }
