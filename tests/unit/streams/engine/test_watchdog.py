from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rowmill.streams.core.offsets import PartitionOffsets
from rowmill.streams.engine.delivery import Delivery
from rowmill.streams.engine.watchdog import (
    FETCH_SILENT_MAX_S,
    GROUP_ASK_EVERY_S,
    GROUP_SILENT_ASKS,
    HEAD_STUCK_MAX_S,
    Watchdog,
)

HEAD = Delivery("rows.input", 0, 7, b"k", b"v", [], 0, 1, PartitionOffsets(7))


@pytest.fixture
def app() -> Any:
    consumer = SimpleNamespace(
        fetching=SimpleNamespace(is_set=lambda: True),
        looked_s=0.0,
        silent=0.0,
        open=[HEAD],
    )
    consumer.silent_s = lambda now_s: consumer.silent
    consumer.heads = lambda: consumer.open
    return SimpleNamespace(
        settings=SimpleNamespace(loop_lag_max_s=30.0, session_timeout_s=10.0),
        heartbeat_age_s=1.0,
        _consumer=consumer,
        role_consumer=consumer,
        should_stop=False,
        ownership=SimpleNamespace(ready=SimpleNamespace(is_set=lambda: True)),
        strict_producer=SimpleNamespace(),
        head_is_waiting=lambda delivery: False,
        waits=False,
    )


def test_a_head_that_waits_for_nothing_known_is_a_standstill(app: Any) -> None:
    watchdog = Watchdog(app)
    for now_s in (0.0, HEAD_STUCK_MAX_S):
        app._consumer.looked_s = now_s
        assert watchdog._standstill(now_s) is None
    app._consumer.looked_s = HEAD_STUCK_MAX_S + 1
    reason = watchdog._standstill(HEAD_STUCK_MAX_S + 1)
    assert reason is not None
    assert "rows.input/0/7 has been open for 121 s" in reason


@pytest.mark.parametrize("change", ["waits", "moves"])
def test_a_head_that_waits_or_moves_is_none(app: Any, change: str) -> None:
    watchdog = Watchdog(app)
    assert watchdog._standstill(0.0) is None
    app._consumer.looked_s = 100.0
    if change == "waits":
        app.head_is_waiting = lambda delivery: True
    else:
        app._consumer.open = [Delivery("rows.input", 0, 8, None, None, [], 0, 1, HEAD._offsets)]
    assert watchdog._standstill(100.0) is None
    app.head_is_waiting = lambda delivery: False
    app._consumer.looked_s = HEAD_STUCK_MAX_S + 50
    assert watchdog._standstill(HEAD_STUCK_MAX_S + 50) is None


def test_a_role_that_does_not_say_what_it_waits_for_is_not_judged_by_its_heads(app: Any) -> None:
    app.head_is_waiting = None
    watchdog = Watchdog(app)
    app._consumer.looked_s = 1e6
    assert watchdog._standstill(0.0) is None
    assert watchdog._standstill(1e6) is None


def test_a_fetcher_that_does_not_answer_is_a_standstill(app: Any) -> None:
    watchdog = Watchdog(app)
    assert "not answered for 31 s" in (watchdog._standstill(31.0) or "")


@pytest.mark.parametrize(("answers", "ends"), [(True, 1), (False, 0)])
async def test_no_fetch_is_a_standstill_only_while_the_broker_answers(
    app: Any, monkeypatch: pytest.MonkeyPatch, answers: bool, ends: int
) -> None:
    async def reaches_broker() -> bool:
        return answers

    ended: list[str] = []
    app.strict_producer.reaches_broker = reaches_broker
    app.loop = asyncio.get_running_loop()
    app._consumer.silent = FETCH_SILENT_MAX_S + 1
    app._consumer.looked_s = 1_000.0
    watchdog = Watchdog(app)
    monkeypatch.setattr(watchdog, "_end", ended.append)
    assert watchdog._standstill(1_000.0) is None
    assert watchdog._question is not None
    await watchdog._question
    assert len(ended) == ends
    assert all("no fetch has returned for 121 s" in reason for reason in ended)


@pytest.mark.parametrize(("answers", "ends"), [(True, 1), (False, 0)])
async def test_a_member_that_beats_no_more_is_ended_only_while_the_broker_answers(
    app: Any, monkeypatch: pytest.MonkeyPatch, answers: bool, ends: int
) -> None:
    async def reaches_broker() -> bool:
        return answers

    ended: list[str] = []
    app.strict_producer.reaches_broker = reaches_broker
    app.loop = asyncio.get_running_loop()
    app.heartbeat_age_s = 40.0
    watchdog = Watchdog(app)
    monkeypatch.setattr(watchdog, "_end", ended.append)
    for asked in range(1, GROUP_SILENT_ASKS + 1):
        watchdog._ask_about_group(asked * GROUP_ASK_EVERY_S)
        assert watchdog._group_question is not None
        await watchdog._group_question
        assert len(ended) == (ends if asked == GROUP_SILENT_ASKS else 0)
    app.heartbeat_age_s = 1.0
    watchdog._ask_about_group(1_000.0)
    assert watchdog._silent_beats == 0


def test_nothing_is_judged_before_the_partitions_are_ready(app: Any) -> None:
    app.ownership.ready.is_set = lambda: False
    assert Watchdog(app)._standstill(1e6) is None
