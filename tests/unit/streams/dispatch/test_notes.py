"""What the history is told of a call: every step, in the order that the promises speak of."""

from __future__ import annotations

from rowmill.streams.core.outcomes import FailureKind, Refused
from tests.kit.fake_engine import settle
from tests.unit.streams.dispatch.role import Role


async def test_a_call_is_told_from_its_claim_to_its_answer() -> None:
    role = Role()
    role.ask()
    await settle(20)
    told = [event["event"] for event in role.events]
    assert told == ["claimed", "running", "sent", "heard", "kept"]
    claimed, _, sent, heard, kept = role.events
    assert claimed["lease"] == sent["lease"] == heard["lease"]
    assert claimed["purchase"] == sent["purchase"] == kept["purchase"]
    assert sent["key"] == heard["key"]
    assert claimed["expires"] == 1_000_000 * (role.clock.monotonic_ms() + 20_000)
    assert (heard["outcome"], kept["state"]) == ("answered", "completed")


async def test_a_refusal_and_the_wait_that_it_asks_for_are_told() -> None:
    role = Role()
    role.provider.answer = lambda number: Refused(
        kind=FailureKind.TRANSIENT, message="slow down", retryable=True, maybe_booked=False,
        reached=True, status_code=429, retry_after_ms=5_000, waits=True,
    )  # fmt: skip
    role.ask()
    await settle(20)
    told = {event["event"]: event for event in role.events}
    assert told["heard"]["outcome"] == "transient"
    assert (told["heard"]["status"], told["heard"]["retryable"]) == (429, True)
    assert told["held"]["until"] >= 1_000_000 * (role.clock.monotonic_ms() + 5_000)
    assert "kept" not in told
