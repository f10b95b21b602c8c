"""What an answer means."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.plays.specs import Auth, ProviderSpec, RetryPolicy, ToolSpec
from rowmill.streams.adapters.http_answers import Reply, judge
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.ports import Send

NOW_MS = 1_772_366_400_000
CANARY = "canary/+value=1"
SECRETS = EnvironmentSecrets({"ROWMILL_SECRET_REGISTRY": CANARY})
CASES = json.loads((Path(__file__).parent / "cases" / "O20_responses.json").read_text())


def sent(*, idempotent: bool = True, bytes_max: int = 10_000) -> Send:
    provider = ProviderSpec(
        id="registry",
        base_url="http://127.0.0.1:1",
        auth=Auth(secret="REGISTRY"),
        retry=RetryPolicy(deadline_s=600),
    )
    tool = ToolSpec(id="profile", provider="registry", path="/company", idempotent=idempotent)
    return Send(provider, tool, {}, "k", timeout_s=1, bytes_max=bytes_max)


def outcome_of(
    status: int,
    body: Any = b"",
    *,
    headers: dict[str, str] | None = None,
    idempotent: bool = True,
    whole: bool = True,
) -> Outcome:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = Reply(status, headers or {}, encoded, whole, latency_ms=7)
    return judge(reply, sent(idempotent=idempotent), SECRETS, NOW_MS)


def refused(status: int, body: Any = b"", **more: Any) -> Refused:
    found = outcome_of(status, body, **more)
    assert isinstance(found, Refused)
    assert found.reached
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case {case['n']}")
def test_a_success_that_is_none_is_no_value(case: dict[str, Any]) -> None:
    """Case O20: nothing from answers 1, 2, 4, 8 and 10 may become a value."""
    body = base64.b64decode(case["body_b64"])
    found = outcome_of(case["status"], body, headers={"content-type": case["type"]})
    if case["n"] in (1, 2, 4, 8, 10):
        assert isinstance(found, Refused)
        assert "ghost@acme.test" not in found.message
    else:
        values: dict[int, Any] = {3: None, 7: [], 9: {"email": "not an address"}}
        expected = case["want"] if isinstance(case["want"], dict) else values[case["n"]]
        assert found == Answered(expected, len(body), 7)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"success": False, "error": "quota"}, FailureKind.OUT_OF_CREDITS),
        ({"ok": False}, FailureKind.PERMANENT),
        ({"error": "no such company"}, FailureKind.PERMANENT),
        ({"status": "error", "error": {"message": "x"}, "data": None}, FailureKind.PERMANENT),
        ({"errors": ["x"], "data": {}}, FailureKind.PERMANENT),
    ],
)
def test_a_success_that_reports_a_failure_is_a_refusal(body: Any, kind: FailureKind) -> None:
    found = refused(200, body)
    assert (found.kind, found.retryable) == (kind, False)
    assert "yet no success" in found.message


@pytest.mark.parametrize(
    "body",
    [
        {"success": True, "error": None, "email": "a@b.test"},
        {"email": "a@b.test", "error": "mailbox full"},
        {"errors": ["one field missing"], "data": {"name": "3M"}},
        {"success": "no"},
        {"message": "hello"},
        False,
        None,
        "error",
    ],
)
def test_an_error_beside_values_is_part_of_the_answer(body: Any) -> None:
    assert outcome_of(200, body) == Answered(body, len(json.dumps(body)), 7)


@pytest.mark.behaviour("Q5")
@pytest.mark.parametrize(
    ("status", "retryable", "maybe_booked", "waits"),
    [
        (408, True, True, False),
        (425, True, False, False),
        (429, True, False, True),
        (500, True, True, False),
        (503, True, True, False),
        (599, True, True, False),
        (409, True, True, True),
        (400, False, False, False),
        (401, False, False, False),
        (403, False, False, False),
        (404, False, False, False),
        (422, False, False, False),
        (302, False, False, False),
        (999, True, True, False),
    ],
)
def test_a_status_says_whether_another_send_may_help(
    status: int, retryable: bool, maybe_booked: bool, waits: bool
) -> None:
    found = refused(status, {"error": {"message": "words"}})
    assert (found.retryable, found.maybe_booked, found.waits) == (retryable, maybe_booked, waits)
    assert found.status_code == status
    assert found.message.startswith(f'{status} "words"')


@pytest.mark.behaviour("Q5")
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (422, {}, FailureKind.PERMANENT),
        (404, {}, FailureKind.PERMANENT),
        (401, {}, FailureKind.TRANSIENT),
        (402, {}, FailureKind.OUT_OF_CREDITS),
        (403, {"error": "insufficient credits"}, FailureKind.OUT_OF_CREDITS),
        (429, {"error": {"code": "insufficient_quota"}}, FailureKind.OUT_OF_CREDITS),
        (429, {"error": "Quota exceeded for requests per minute"}, FailureKind.TRANSIENT),
        (500, {"email": "ghost@acme.test"}, FailureKind.TRANSIENT),
    ],
)
def test_a_refusal_has_the_kind_that_says_who_can_act(
    status: int, body: Any, kind: FailureKind
) -> None:
    found = refused(status, body)
    assert found.kind is kind
    if kind is FailureKind.OUT_OF_CREDITS:
        assert not found.retryable


def test_a_conflict_is_the_providers_refusal_where_it_honours_no_key() -> None:
    found = refused(409, {"error": "exists"}, idempotent=False)
    assert (found.kind, found.retryable, found.waits) == (FailureKind.PERMANENT, False, False)


@pytest.mark.behaviour("Q5")
def test_a_wait_that_was_asked_for_is_read_and_bounded_by_the_deadline() -> None:
    for status in (408, 409, 429, 500, 503):
        found = refused(status, headers={"retry-after": "120"})
        assert (found.retry_after_ms, found.waits) == (120_000, True)
    assert refused(429, headers={"retry-after": "9" * 400}).retry_after_ms == 600_000
    assert refused(429, headers={"x-ratelimit-reset": "30"}).retry_after_ms == 30_000
    assert refused(503, headers={"x-ratelimit-reset": "30"}).waits
    decoration = refused(500, headers={"x-ratelimit-reset": "30"})
    assert (decoration.retry_after_ms, decoration.waits) == (None, False)


def test_a_redirect_names_its_target_and_is_not_followed() -> None:
    found = refused(301, headers={"location": "https://api.test/\x1b[31m"})
    assert found.message == (
        "301 Moved Permanently, to https://api.test/ [31m: redirects are not followed, "
        "name the final address"
    )


@pytest.mark.behaviour("R9")
def test_an_answer_that_cannot_be_kept_ends_without_its_value() -> None:
    large = refused(200, b'{"a": "' + b"x" * 50, whole=False)
    assert (large.kind, large.retryable) == (FailureKind.TOO_LARGE, False)
    assert "more than 10,000 bytes" in large.message
    deep = refused(200, b"[" * 5_000 + b"]" * 5_000)
    assert deep.kind is FailureKind.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "retryable"), [(b"", True), (b'{"a": "b', True), (b"<html>", True), (b"NaN", False)]
)
def test_an_unusable_success_may_be_booked(body: bytes, retryable: bool) -> None:
    found = refused(200, body)
    assert (found.kind, found.retryable) == (FailureKind.TRANSIENT, retryable)
    assert found.maybe_booked
    assert found.message.startswith("200, but the answer is unusable: ")


@pytest.mark.behaviour("R10")
@pytest.mark.parametrize(
    "shown",
    [
        CANARY,
        "canary%2F%2Bvalue%3D1",
        base64.b64encode(f"user:{CANARY}".encode()).decode(),
        "x" + base64.urlsafe_b64encode(CANARY.encode()).decode(),
    ],
)
def test_a_secret_that_comes_back_is_not_kept(shown: str) -> None:
    for body in ({"echo": shown}, json.dumps({"echo": shown}).replace("/", "\\/").encode()):
        found = refused(200, body)
        assert found.kind is FailureKind.SECRET
        assert (found.retryable, found.maybe_booked) == (False, True)
        assert "REGISTRY" in found.message
        assert shown not in found.message


@pytest.mark.behaviour("R10")
def test_a_secret_behind_escapes_is_found() -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in CANARY)
    assert refused(200, f'{{"echo": "{escaped}"}}'.encode()).kind is FailureKind.SECRET


@pytest.mark.behaviour("R10")
@pytest.mark.parametrize("status", [200, 401, 422, 500])
def test_a_secret_in_the_providers_words_is_left_out(status: int) -> None:
    found = refused(status, {"success": False, "error": f"bad key {CANARY}"})
    assert CANARY not in found.message
    assert "REGISTRY" in found.message


def test_a_refused_key_names_the_secret_to_check() -> None:
    assert refused(401).message == '401 Unauthorized; check secret "REGISTRY"'


@given(
    status=st.integers(200, 999),
    body=st.binary(max_size=200) | st.from_regex(rb'\A\{"(error|ok|data)": .{0,20}\}\Z'),
    headers=st.dictionaries(
        st.sampled_from(["content-type", "retry-after", "location"]), st.text(max_size=30)
    ),
)
def test_no_answer_breaks_the_judge(status: int, body: bytes, headers: dict[str, str]) -> None:
    found = outcome_of(status, body, headers=headers)
    if isinstance(found, Refused):
        assert found.message
        assert found.message.isprintable()
        assert len(found.message) < 1_000
