"""What an answer means: a value, a refusal, or a success that is none (Q5, O20).

Pure: status, headers and inflated body in, an Outcome out. Everything a provider sent ends here; what
leaves is bounded, printable and free of secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec

from rowmill.streams.adapters.http_body import BodyUnusable
from rowmill.streams.adapters.http_json import NestedTooDeep, decode
from rowmill.streams.adapters.http_words import credits_gone, printable, words_of
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.core.retry_after import asked_wait_ms
from rowmill.streams.ports import Secrets, Send

_NO_CONTENT = (204, 205)
_WAIT_HEADERS_COUNT = (429, 503)
"""Statuses with which rate limit headers say when to come back; others send them as decoration."""

_ENVELOPE = frozenset(
    (
        "error",
        "errors",
        "message",
        "detail",
        "code",
        "status",
        "success",
        "ok",
        "request_id",
        "data",
    )
)
"""Members of an object that only reports: with an error and nothing beside these it is no value."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came. `headers`: names in lower case. `body`: inflated; `whole`: not cut at the
    bound. `latency_ms`: from sending to the last byte. `unreadable`: why there is no body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool
    latency_ms: float
    unreadable: BodyUnusable | None = None


def judge(reply: Reply, send: Send, secrets: Secrets, now_epoch_ms: int) -> Outcome:
    """Return what came of a send that got an answer. `now_epoch_ms`: wall clock."""
    if 200 <= reply.status < 300:
        outcome = _judge_success(reply, send, secrets)
    else:
        outcome = _judge_refusal(reply, send, now_epoch_ms)
    return outcome if isinstance(outcome, Answered) else without_secrets(outcome, secrets)


def without_secrets(refused: Refused, secrets: Secrets) -> Refused:
    """Return the refusal, its words left out where they carry a secret (R10)."""
    name = secrets.found_in(refused.message.encode())
    if name is None:
        return refused
    status = f"{refused.status_code}, " if refused.status_code else ""
    return replace(refused, message=f"{status}the provider's words carry secret {name}: left out")


def _judge_success(reply: Reply, send: Send, secrets: Secrets) -> Outcome:
    size = len(reply.body)
    if reply.unreadable:
        return _unusable(reply, reply.unreadable)
    if not reply.whole:
        return _too_large(reply, f"more than {send.bytes_max:,} bytes")
    if reply.status in _NO_CONTENT:
        return Answered(None, size, reply.latency_ms)
    try:
        output = decode(reply.body, reply.headers.get("content-type", ""))
    except NestedTooDeep as error:
        return _too_large(reply, str(error))
    except BodyUnusable as error:
        return _unusable(reply, error)
    if (name := _secret_in(reply.body, output, secrets)) is not None:
        message = f"the answer ({size:,} bytes) carries secret {name} and is not kept"
        return _refused(reply, FailureKind.SECRET, message, maybe_booked=True)
    if _is_no_success(output):
        # 402's wider net: without an error status "quota" can only mean that it is used up.
        spent = credits_gone(reply.body) or b"quota" in reply.body.lower()
        kind = FailureKind.OUT_OF_CREDITS if spent else FailureKind.PERMANENT
        words = words_of(reply.body)
        return _refused(reply, kind, f'{reply.status}, yet no success: "{words}"')
    return Answered(output, size, reply.latency_ms)


def _judge_refusal(reply: Reply, send: Send, now_epoch_ms: int) -> Refused:
    status = reply.status
    message = _message(reply)
    if status == 402 or (status in (403, 429) and credits_gone(reply.body)):
        return _refused(reply, FailureKind.OUT_OF_CREDITS, message)
    if status == 409 and send.tool.idempotent:
        # IETF Idempotency-Key draft, 2.7: the first request with this key is still at work.
        asked = _asked_ms(reply, send, now_epoch_ms)
        return _again(reply, message, maybe_booked=True, asked_ms=asked, waits=True)
    if status in (408, 425, 429) or status >= 500:
        asked = _asked_ms(reply, send, now_epoch_ms)
        booked = status >= 500 or status == 408
        waits = status == 429 or asked is not None
        return _again(reply, message, maybe_booked=booked, asked_ms=asked, waits=waits)
    if status == 401:
        auth = send.provider.auth
        hint = f'; check secret "{auth.secret}"' if auth else "; the provider has no auth="
        # Nothing was bought, and the next run may have a better secret: it asks again.
        return _refused(reply, FailureKind.TRANSIENT, message + hint)
    if 300 <= status < 400:
        target = printable(reply.headers.get("location", "nowhere"))
        return _refused(
            reply,
            FailureKind.PERMANENT,
            f"{message}, to {target}: redirects are not followed, name the final address",
        )
    return _refused(reply, FailureKind.PERMANENT, message)


def _asked_ms(reply: Reply, send: Send, now_epoch_ms: int) -> int | None:
    headers = reply.headers
    if reply.status not in _WAIT_HEADERS_COUNT:
        headers = {"retry-after": headers.get("retry-after", "")}
    policy = send.tool.retry or send.provider.retry
    return asked_wait_ms(headers, now_epoch_ms, round(policy.deadline_s * 1000))


def _message(reply: Reply) -> str:
    words = words_of(reply.body)
    if words:
        return f'{reply.status} "{words}"'
    try:
        return f"{reply.status} {HTTPStatus(reply.status).phrase}"
    except ValueError:
        return f"{reply.status} without words"


def _is_no_success(output: Any) -> bool:
    """Say whether a success's body reports a failure.

    The rule: an object whose `success` or `ok` is false; or one with an error and, beside members
    that only report, nothing that has a value. An error beside values is part of the answer.
    """
    if not isinstance(output, dict):
        return False
    if output.get("success") is False or output.get("ok") is False:
        return True
    if not (output.get("error") or output.get("errors")):
        return False
    values = [name for name, value in output.items() if name not in _ENVELOPE and value is not None]
    return not values and not output.get("data")


def _secret_in(body: bytes, output: Any, secrets: Secrets) -> str | None:
    name = secrets.found_in(body)
    if name is None and b"\\" in body:
        # Escapes such as \u0041 hide a value from a search of the bytes.
        name = secrets.found_in(msgspec.json.encode(output))
    return name


def _unusable(reply: Reply, error: BodyUnusable) -> Refused:
    """A body that ended too early may come whole the next time, under the same key; one that is wrong
    will be wrong again."""
    return _refused(
        reply,
        FailureKind.TRANSIENT,
        f"{reply.status}, but the answer is unusable: {error}",
        retryable=error.cut,
        maybe_booked=True,
    )


def _too_large(reply: Reply, reason: str) -> Refused:
    message = f"{reply.status}, but the answer is too large: {reason}; it is not kept"
    return _refused(reply, FailureKind.TOO_LARGE, message, maybe_booked=True)


def _again(
    reply: Reply, message: str, *, maybe_booked: bool, asked_ms: int | None, waits: bool
) -> Refused:
    refused = _refused(
        reply, FailureKind.TRANSIENT, message, retryable=True, maybe_booked=maybe_booked
    )
    return replace(refused, retry_after_ms=asked_ms, waits=waits)


def _refused(
    reply: Reply,
    kind: FailureKind,
    message: str,
    *,
    retryable: bool = False,
    maybe_booked: bool = False,
) -> Refused:
    return Refused(
        kind=kind,
        message=message,
        retryable=retryable,
        maybe_booked=maybe_booked,
        reached=True,
        status_code=reply.status,
        latency_ms=reply.latency_ms,
    )
