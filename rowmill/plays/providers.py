"""A provider as a play declares it: where it is, how to authorise, how fast it may be asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from rowmill.plays.sites import brief, first_problem, here
from rowmill.plays.specs import Auth, ProviderSpec, Rate, RetryPolicy

_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "h": 3_600, "d": 86_400}
_LONG_UNITS = {"second": "s", "sec": "s", "minute": "min", "m": "min", "hour": "h", "day": "d"}
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_RATE = re.compile(r"\s*(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*([a-z]+)\s*")
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


class Provider:
    """A paid HTTP service.

    >>> registry = Provider(
    ...     "registry",
    ...     base_url="https://registry.test/v2",
    ...     auth=bearer("REGISTRY_KEY"),
    ...     limits=[rate("100/s"), rate("2000/min")],
    ...     concurrency=40,
    ... )
    >>> registry.spec.host, registry.spec.limits[1].per_s
    ('registry.test', 60.0)

    Args:
        id: name in reports and lanes; letters, digits, `_`, `.`, `-`.
        base_url: `http(s)://host[:port][/path]`; a tool's path is put after it.
        auth: `bearer(...)` or `header(...)`; names a secret, never holds its value.
        scope: label of the account whose answers these are; another scope, other receipts (R1).
        headers: sent with every request; no secrets.
        limits: windows of `rate(...)`; all hold at once.
        concurrency: most calls in flight at once, 1 or more; unset: 32.
        retry: attempts, backoff and deadline of a call.

    Raises: PlayError naming file, line and field.
    """

    def __init__(
        self,
        id: str,
        *,
        base_url: str,
        auth: Auth | None = None,
        scope: str = "default",
        headers: Mapping[str, str] | None = None,
        limits: Iterable[Rate] = (),
        concurrency: int | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.site = here()
        name = f'Provider "{id}"'
        if auth is not None and not isinstance(auth, Auth):
            self.site.refuse(f'{name}: auth: use bearer("SECRET_NAME") or header("X-Key", "…").')
        try:
            self.spec = ProviderSpec(
                id=id,
                base_url=base_url,
                auth=auth,
                scope=scope,
                headers=dict(headers or {}),
                limits=tuple(limits),
                concurrency=concurrency,
                retry=retry or RetryPolicy(),
            )
        except ValidationError as error:
            self.site.refuse(f"{name}: {first_problem(error)}")

    @property
    def id(self) -> str:
        """The provider's id."""
        return self.spec.id

    def __repr__(self) -> str:
        return f"Provider({self.id!r}, base_url={self.spec.base_url!r})"


def bearer(secret: str) -> Auth:
    """Send `Authorization: Bearer …` with the value of the secret of that name.

    >>> bearer("REGISTRY_KEY").secret
    'REGISTRY_KEY'

    Raises: PlayError where `secret` is no name, so that a pasted key never stays in a play.
    """
    return Auth(kind="bearer", secret=_secret_name(secret))


def header(name: str, secret: str) -> Auth:
    """Send the value of the secret in a header of its own.

    >>> header("X-Api-Key", "REGISTRY_KEY").name
    'X-Api-Key'

    Raises: PlayError where `secret` is no name.
    """
    return Auth(kind="header", secret=_secret_name(secret), name=name)


def rate(text: str) -> Rate:
    """Return one window of a rate limit: `100/s`, `2000/min`, `10/2s`, `5000/day`.

    >>> rate("100/s").calls, rate("2000/min").per_s, rate("10/2s").per_s
    (100, 60.0, 2.0)

    Raises: PlayError for any other text, and for 0 calls.
    """
    found = _RATE.fullmatch(text.lower())
    unit = _unit(found[3]) if found else None
    if found is None or unit is None or int(found[1]) == 0 or float(found[2] or 1) == 0:
        here().refuse(f"rate({text!r}): write calls per time, such as 100/s, 2000/min or 10/2s.")
    return Rate(calls=int(found[1]), per_s=float(found[2] or 1) * _SECONDS[unit])


def seconds(duration: str | float) -> float:
    """Return a duration in seconds: a number as it is, or text such as `30d`, `12h`, `90 s`.

    >>> seconds("30d"), seconds("1.5h"), seconds(10)
    (2592000.0, 5400.0, 10.0)

    Raises: ValueError for other text and for what is not above 0.
    """
    if isinstance(duration, str):
        found = _DURATION.fullmatch(duration.lower())
        unit = _unit(found[2]) if found else None
        if found is None or unit is None:
            raise ValueError(f"write a time such as 30d, 12h or 90s (got {brief(duration)})")
        value = float(found[1]) * _SECONDS[unit]
    else:
        value = float(duration)
    if not value > 0:
        raise ValueError(f"a time must be above 0 (got {value:g})")
    return value


def _unit(text: str) -> str | None:
    short = text if text in _SECONDS else _LONG_UNITS.get(text, _LONG_UNITS.get(text[:-1]))
    return short if short in _SECONDS else None


def _secret_name(secret: str) -> str:
    # The text is not repeated: it may be the secret itself.
    if not isinstance(secret, str) or not _SECRET_NAME.fullmatch(secret):
        here().refuse(
            "a secret is named, not written into the play: use capitals, digits and _, such as "
            'bearer("REGISTRY_KEY"), and set ROWMILL_SECRET_REGISTRY_KEY.'
        )
    return secret
