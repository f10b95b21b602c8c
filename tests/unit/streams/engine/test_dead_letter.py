"""The dead letter holds what nobody could read, but no secret."""

from __future__ import annotations

import base64
from typing import Any, cast
from urllib.parse import quote

import pytest

from rowmill.streams.engine.dead_letter import COPIED_BYTES_MAX, set_aside
from tests.kit.fake_engine import CANARY, FakeApp, FakeDelivery, settle

SHOWN = [CANARY, base64.b64encode(b"a:" + CANARY.encode()).decode(), quote(CANARY, safe="")]


async def test_a_record_is_kept_with_its_place_and_the_reason() -> None:
    app, delivery = cast(Any, FakeApp()), FakeDelivery(b"\xff{", partition=2, offset=7)
    set_aside(app, cast(Any, delivery), "not JSON")
    await settle()
    (letter,) = app.produced["rows.dead-letter"]
    assert (letter.partition, letter.offset, letter.reason) == (2, 7, "not JSON")
    assert base64.b64decode(letter.value_base64) == b"\xff{"
    assert delivery.acked


@pytest.mark.behaviour("R10")
@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("place", ["key", "value", "reason"])
async def test_what_carries_a_secret_is_told_of_and_not_copied(shown: str, place: str) -> None:
    app = cast(Any, FakeApp())
    parts = {"key": "k", "value": "{", "reason": "why"} | {place: f"<{shown}>"}
    delivery = FakeDelivery(parts["value"].encode(), key=parts["key"].encode())
    set_aside(app, cast(Any, delivery), parts["reason"])
    await settle()
    (letter,) = app.produced["rows.dead-letter"]
    assert "CANARY" in letter.reason
    value = base64.b64decode(letter.value_base64 or "")
    for written in (*app.raw["rows.dead-letter"], value):
        assert shown.encode() not in written
        assert app.secrets.found_in(written) is None
    assert delivery.acked


@pytest.mark.parametrize("key", [b"key", b"\0" * 300_000])
async def test_what_is_too_large_to_be_copied_is_told_of(key: bytes) -> None:
    """The copy was above what a record may have: the worker died, and again at the next start."""
    app = cast(Any, FakeApp())
    delivery = FakeDelivery(b"x" * (COPIED_BYTES_MAX + 1), key=key, topic="rows.input")
    set_aside(app, cast(Any, delivery), "not JSON")
    await settle()
    (letter,) = app.produced["rows.dead-letter"]
    assert letter.value_base64 is None
    assert "the value is left out: 600,001 bytes, see the record itself" in letter.reason
    assert len(app.raw["rows.dead-letter"][0]) < 900_000
    assert delivery.acked
