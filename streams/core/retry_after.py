"""How long a provider asked to wait, read from its headers without trusting them (O13).

`Retry-After` wins (RFC 9110, 10.2.3: seconds or an HTTP date; fractions are seen too). A malformed one
is ignored, then the rate limit headers count: `RateLimit` (IETF httpapi-ratelimit-headers: `t=` in
draft 8 and later, `reset=` in draft 3 to 6), `RateLimit-Reset` (seconds) and `X-RateLimit-Reset`
(seconds, or an instant since the epoch in seconds or milliseconds). What "remaining" says is no
guarantee and is not read.

Nothing here raises for any text, and no answer is negative, not finite or above the bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

# Plain ASCII digits only: int() and float() also take "1_0", "nan", "inf", "1e999" and other scripts'
# digits, and int() refuses more than 4,300 digits.
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?\Z")
_RESET_PARAMETER = re.compile(r"(?:^|[;,\s])(?:t|reset)=([0-9]{1,15})(?![0-9.])")

_DIGITS_MAX = 15
"""Longer whole numbers are beyond any bound, and floats would lose their digits."""

_DATE_CHARACTERS_MAX = 64
"""The longest HTTP date has 33; a parser need not see more."""

_INSTANT_S_MIN = 1_000_000_000
"""From here (2001-09-09) a reset number is an instant: as a delay it would be 31 years."""

_INSTANT_MS_MIN = 100_000_000_000
"""From here (in seconds the year 5138) a reset number is an instant in milliseconds."""

_RESETS = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset")


def asked_wait_ms(headers: Mapping[str, str], now_epoch_ms: int, longest_ms: int) -> int | None:
    """Return for how long the provider asked to wait: 0 to `longest_ms`, rounded up.

    `headers`: names in lower case. `now_epoch_ms`: wall clock, dates are compared with it. Returns
    None where nothing was asked or nothing readable: the caller's own backoff applies. 0 says that
    the moment is past; the caller's own backoff may apply too.
    """
    found = retry_after_ms(headers.get("retry-after", ""), now_epoch_ms)
    if found is None:
        found = _rate_limit_ms(headers, now_epoch_ms)
    return None if found is None else math.ceil(min(max(found, 0), longest_ms))


def retry_after_ms(text: str, now_epoch_ms: int) -> float | None:
    """Return what `Retry-After: text` asks for, unbounded, None where it is malformed."""
    text = text.strip()
    number = _number(text)
    return _date_ms(text, now_epoch_ms) if number is None else number * 1000


def _number(text: str) -> float | None:
    if not _NUMBER.match(text):
        return None
    whole, _, _ = text.partition(".")
    if len(whole.lstrip("0")) > _DIGITS_MAX:
        return 10.0**_DIGITS_MAX
    return float(text[: len(whole) + 1 + _DIGITS_MAX])


def _date_ms(text: str, now_epoch_ms: int) -> float | None:
    if len(text) > _DATE_CHARACTERS_MAX:
        return None
    try:
        moment = parsedate_to_datetime(text)
        # An HTTP date is GMT; asctime's form and "-0000" come back without a zone.
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.timestamp() * 1000 - now_epoch_ms
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _rate_limit_ms(headers: Mapping[str, str], now_epoch_ms: int) -> float | None:
    # Of several limits the shortest: another 429 corrects a send that came too early, nothing would
    # correct a lane that sleeps until the end of a daily limit which still had room.
    resets = [int(reset) for reset in _RESET_PARAMETER.findall(headers.get("ratelimit", "")[:1000])]
    if resets:
        return min(resets) * 1000
    for name in _RESETS:
        number = _number(headers.get(name, "").strip())
        if number is not None:
            return _reset_ms(number, now_epoch_ms)
    return None


def _reset_ms(number: float, now_epoch_ms: int) -> float:
    if number >= _INSTANT_MS_MIN:
        return number - now_epoch_ms
    if number >= _INSTANT_S_MIN:
        return number * 1000 - now_epoch_ms
    return number * 1000
