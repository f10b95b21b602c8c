"""An answer that was paid for and can't be kept: its receipt says so, by name, and is not asked again."""

from __future__ import annotations

import pytest

from rowmill.streams.core.outcomes import FailureKind, Refused
from tests.kit.fake_engine import settle
from tests.unit.streams.dispatch.role import Role


@pytest.mark.behaviour("R9")
@pytest.mark.parametrize("kind", [FailureKind.TOO_LARGE, FailureKind.SECRET])
async def test_an_answer_that_can_not_be_kept_names_its_receipt(kind: FailureKind) -> None:
    role = Role()
    role.provider.answer = lambda number: Refused(
        kind, "it is not kept", retryable=False, maybe_booked=True, reached=True
    )
    role.ask()
    await settle()
    (result,) = role.results
    assert result.error["message"] == 'receipt "k": it is not kept'
    assert result.error["kind"] == kind
    role.ask("r2")
    await settle()
    assert len(role.provider.sends) == 1, "it was paid for: only a forced ask buys it again"
