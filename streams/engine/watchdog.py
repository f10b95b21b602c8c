"""Ends a process that stands still: dying is safe, a silent stall is not (175, 523, 532).

A thread of its own watches, so that a loop that is blocked is seen too. It ends the process with
`os._exit` and one line that names the reason; the supervisor starts it again, and work goes on from
the last commit. The exit code tells a supervisor that no row is to blame.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from rowmill.streams.engine.app import RoleApp
    from rowmill.streams.engine.delivery import Delivery

log = structlog.get_logger(__name__)

EXIT_WATCHDOG = 75
"""EX_TEMPFAIL of sysexits.h: start me again."""

LOOK_EVERY_S = 1.0
LATE_S = 2 * LOOK_EVERY_S
"""A look that comes later than this was itself held up."""
FETCH_SILENT_S = 10.0
"""No fetch for so long: ask whether the broker is there, and say so every 10 s if it is not."""
ASK_EVERY_S = 10.0
FETCH_SILENT_MAX_S = 120.0
"""Far above a broker's restart (14.6 s for three of them) and aiokafka's request time-out (40 s)."""
HEAD_STUCK_MAX_S = 120.0
"""Far above what a role does between an event and a wake-up, permit or call that it knows of."""


@dataclass(slots=True)
class _Head:
    delivery: Delivery
    since_s: float


GROUP_ASK_EVERY_S = 5.0
GROUP_SILENT_ASKS = 4
"""Answers of the broker in a row, over some 20 s, during which a heartbeat would have come."""


class Watchdog:
    """Watches one app from `start` to `stop`."""

    def __init__(self, app: RoleApp) -> None:
        self._app = app
        self._lag_max_s = app.settings.loop_lag_max_s
        self._looked_s = self._ticked_s = time.monotonic()
        self._stopped = threading.Event()
        self._heads: dict[tuple[str, int], _Head] = {}
        self._loop_thread = threading.main_thread()
        self._asked_s = 0.0
        self._question: asyncio.Task[None] | None = None

    _silent_beats = 0
    _beats_asked_s = 0.0
    _group_question: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch; called in the app's loop."""
        self._loop_thread = threading.current_thread()
        self._tick()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """End watching."""
        self._stopped.set()

    def _tick(self) -> None:
        if self._stopped.is_set():
            return
        now_s = time.monotonic()
        late = now_s - self._looked_s > LATE_S
        self._looked_s = self._ticked_s = now_s
        if late:
            # The loop, or the whole process, stood still: what it waits for was not looked at either.
            self._begin_again(now_s)
        elif (reason := self._standstill(now_s)) is not None:
            self._end(reason)
        self._app.loop.call_later(LOOK_EVERY_S, self._tick)

    def _watch(self) -> None:
        looked_s = time.monotonic()
        while not self._stopped.wait(LOOK_EVERY_S):
            now_s = time.monotonic()
            if now_s - looked_s > LATE_S:
                # The whole process was stopped (SIGSTOP, a frozen machine): the loop is not to blame.
                self._ticked_s = now_s
            looked_s = now_s
            lag_s = now_s - self._ticked_s
            if lag_s > self._lag_max_s:
                self._end(f"the loop has been blocked for {lag_s:.0f} s", self._where())

    def _begin_again(self, now_s: float) -> None:
        self._heads.clear()
        if self._app._consumer is not None:
            self._app.role_consumer.count_from(now_s)

    def _standstill(self, now_s: float) -> str | None:
        app = self._app
        if app._consumer is None or app.should_stop or not app.ownership.ready.is_set():
            self._heads.clear()
            return None
        consumer = app.role_consumer
        if consumer.fetching.is_set():
            silent_s = now_s - consumer.looked_s
            if silent_s > self._lag_max_s:
                return f"the fetcher has not answered for {silent_s:.0f} s"
            self._ask_broker(consumer.silent_s(now_s), now_s)
        self._ask_about_group(now_s)
        return self._stuck_head(now_s)

    def _ask_about_group(self, now_s: float) -> None:
        """Notice a member that beats no more although the broker answers: its gate stays closed.

        Seen after a broker's restart: aiokafka's coordinator never came back from looking for its
        node (175, 523). A restart has its partitions back within seconds.
        """
        app = self._app
        if app.heartbeat_age_s <= app.settings.session_timeout_s:
            self._silent_beats = 0
        elif now_s - self._beats_asked_s >= GROUP_ASK_EVERY_S:
            self._beats_asked_s = now_s
            self._group_question = app.loop.create_task(self._judge_group())

    async def _judge_group(self) -> None:
        if not await self._app.strict_producer.reaches_broker():
            self._silent_beats = 0
            return
        self._silent_beats += 1
        if self._silent_beats >= GROUP_SILENT_ASKS:
            age_s = self._app.heartbeat_age_s
            self._end(f"the group took no heartbeat for {age_s:.0f} s although the broker answers")

    def _ask_broker(self, silent_s: float, now_s: float) -> None:
        """Tell a broker that is away, which the worker waits for, from a fetch that has stalled."""
        if silent_s < FETCH_SILENT_S or now_s - self._asked_s < ASK_EVERY_S:
            return
        self._asked_s = now_s
        self._question = self._app.loop.create_task(self._judge(silent_s))

    async def _judge(self, silent_s: float) -> None:
        if not await self._app.strict_producer.reaches_broker():
            log.warning("broker_away", silent_s=round(silent_s))
        elif silent_s > FETCH_SILENT_MAX_S:
            self._end(f"no fetch has returned for {silent_s:.0f} s although the broker answers")

    def _stuck_head(self, now_s: float) -> str | None:
        is_waiting = self._app.head_is_waiting
        if is_waiting is None:
            return None
        heads: dict[tuple[str, int], _Head] = {}
        for delivery in self._app.role_consumer.heads():
            place = (delivery.topic, delivery.partition)
            known = self._heads.get(place)
            if known is None or known.delivery is not delivery or is_waiting(delivery):
                heads[place] = _Head(delivery, now_s)
                continue
            heads[place] = known
            if now_s - known.since_s > HEAD_STUCK_MAX_S:
                return (
                    f"{delivery.topic}/{delivery.partition}/{delivery.offset} has been open for "
                    f"{now_s - known.since_s:.0f} s and waits for nothing that is known"
                )
        self._heads = heads
        return None

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-6:])

    def _end(self, reason: str, stack: str = "") -> None:
        log.error("watchdog_ends_process", reason=reason, pid=os.getpid(), stack=stack or None)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_WATCHDOG)
