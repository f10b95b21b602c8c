"""What a Provider and a Tool are once Params are filled in: plain, frozen, JSON.

They travel in the `runs` record; dispatch needs nothing else of a play (no play code). Secrets
stand here by name only.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.\-]{0,99}$")]

TIMEOUT_S_MAX = 900
"""Longest time-out of one send: a tool may ask for up to 15 min (Q5)."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
"""RFC 9110, 5.1 and 5.5; values in ASCII, as no recipient agrees on more."""

SECONDS_MAX = 36_500 * 86_400
"""Of any time: a century. In milliseconds it stays a whole number, and a timer can be set for it."""

VERSION_MAX = (1 << 63) - 1

CALLS_MAX = 1_000_000_000
"""Of a rate, of calls in flight: beyond all that a worker could do."""

BATCH_MEMBERS_MAX = 1_000
"""Of one request: with a question of 1 kB each a record of Kafka still holds it."""

Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX)]


class Spec(BaseModel):
    """Base: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Rate(Spec):
    """One window of a rate limit: at most `calls` sends in any `per_s` seconds."""

    calls: Annotated[int, Field(ge=1, le=CALLS_MAX)]
    per_s: Annotated[float, Field(ge=0.001, le=SECONDS_MAX)]


class Auth(Spec):
    """How a request is authorised. `secret` is a name, never a value."""

    kind: Literal["bearer", "header", "query"] = "bearer"
    secret: str
    name: str = "Authorization"

    @model_validator(mode="after")
    def _name_is_sendable(self) -> Self:
        if self.kind != "query" and not _HEADER_NAME.fullmatch(self.name):
            raise ValueError(f"name={self.name!r} can't be the name of a header")
        return self


class RetryPolicy(Spec):
    """How often and when a call is sent again (Q5)."""

    attempts: Annotated[int, Field(ge=1, le=20)] = 3
    backoff_s: Seconds = 0.5
    backoff_s_max: Seconds = 30
    deadline_s: Seconds = 900


class ProviderSpec(Spec):
    """A paid HTTP service."""

    id: Identifier
    base_url: str
    scope: str = "default"
    auth: Auth | None = None
    headers: dict[str, str] = {}
    limits: tuple[Rate, ...] = ()
    concurrency: Annotated[int, Field(ge=1, le=CALLS_MAX)] | None = None
    retry: RetryPolicy = RetryPolicy()

    @field_validator("base_url")
    @classmethod
    def _http_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be http(s)://host[:port][/path]")
        if parts.username or parts.password:
            raise ValueError("must not carry a password; use auth=")
        if parts.query or parts.fragment or not url.isprintable() or " " in url:
            raise ValueError("must be http(s)://host[:port][/path], without ?, # and spaces")
        _ = parts.port  # raises ValueError where it is none
        return url.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _no_secret(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} can't be the name of a header")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"{name} holds a line break, or a character beyond ASCII")
            if name.lower() in ("authorization", "proxy-authorization", "cookie"):
                raise ValueError(f"{name} would carry a secret into the topics; use auth=")
        return headers

    @property
    def host(self) -> str:
        """Host name in lower case, without scheme and port (part of the receipt key, R1)."""
        # urlsplit leaves what stands after a "%" (a zone) as it is.
        return (urlsplit(self.base_url).hostname or "").lower()


class BatchSpec(Spec):
    """How a tool asks many questions in one request: see `plays.batches.batch`."""

    path: str
    size: Annotated[int, Field(ge=1, le=BATCH_MEMBERS_MAX)]
    members: Annotated[str, Field(min_length=1)]
    match: str | None = None
    echo: str | None = None
    by_place: bool = False
    answers: str | None = None
    answer: str | None = None
    error: str | None = None
    status: str | None = None
    retry_after: str | None = None
    linger_ms: Annotated[int, Field(ge=0, le=60_000)] = 20

    @model_validator(mode="after")
    def _one_way_to_match(self) -> Self:
        given = [self.match is not None, self.echo is not None, self.by_place]
        if given.count(True) != 1:
            raise ValueError(
                'say how answers are matched, in one way: match="field", echo="field" or by_place=True'
            )
        return self

    @field_validator("path")
    @classmethod
    def _sendable_path(cls, path: str) -> str:
        return _path(path)


class ToolSpec(Spec):
    """One operation of a provider."""

    id: Identifier
    provider: Identifier
    method: Literal["POST", "GET", "PUT"] = "POST"
    path: str
    version: Annotated[int, Field(ge=1, le=VERSION_MAX)] = 1
    timeout_s: Annotated[float, Field(gt=0, le=TIMEOUT_S_MAX)] = 60
    retry: RetryPolicy | None = None
    idempotent: bool = True
    key_lifetime_s: Seconds = 86_400
    stale_after_s: Seconds | None = None
    cost: Annotated[float, Field(ge=0)] = 0
    output_schema: dict[str, Any] | None = None
    batch: BatchSpec | None = None

    @field_validator("path")
    @classmethod
    def _absolute_path(cls, path: str) -> str:
        return _path(path)


def _path(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must start with '/'")
    if not path.isprintable() or "#" in path:
        raise ValueError("must be printable, without #")
    return path
