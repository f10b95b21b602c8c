"""Run a role's app until it is told to stop, and say how it ended."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog
import uvloop
from aiokafka.errors import KafkaError

from rowmill.errors import RowmillError
from rowmill.streams.engine.watchdog import Watchdog
from rowmill.topics.creation import check_topics

if TYPE_CHECKING:
    from rowmill.streams.engine.app import RoleApp

log = structlog.get_logger(__name__)

GC_THRESHOLD = 50_000
"""Objects made before the young generation is looked through. Work in flight is reachable and almost
nothing is cyclic, so Python's 700 spends a tenth of a busy role's CPU on finding nothing."""

STOP_WITHIN_S = 30.0
"""A stop that takes longer (broker away) ends the process: dying is safe, hanging is not."""

EXIT_CRASH = 1
EXIT_INFRASTRUCTURE = 3


def run(app: RoleApp, *, on_ready: Callable[[], None]) -> int:
    """Run `app` on uvloop until SIGTERM, SIGINT or a fault, and return the exit code.

    `on_ready` is called once, when the first assignment is ready (or empty). 0: stopped as told, work
    committed, group left. 3: broker, disk or another process is not as needed, with a sentence in the
    log. 1: a fault of the code. The watchdog ends the process by itself (`watchdog.EXIT_WATCHDOG`).
    """
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(app, on_ready))
    except RowmillError as error:
        log.error("worker_failed", reason=str(error))
        return error.exit_code
    finally:
        app.directory.release()


async def _serve(app: RoleApp, on_ready: Callable[[], None]) -> int:
    told, hurry = _signals()
    # Workers create and alter nothing; a missing topic or another partition count is told here.
    await check_topics(app.settings)
    watchdog = Watchdog(app)
    watchdog.start()
    try:
        try:
            for hook in app.before_start:
                await hook()
            app.note(
                "started",
                role=app.conf.id.rpartition("-")[2],
                instance=app.instance,
                session_ms=round(app.settings.session_timeout_s * 1000),
                lease_ms=round(app.settings.lease_s * 1000),
            )
            await app.start()
            await _until_any(app.ownership.ready.wait(), told.wait(), app._crashed.wait())
            # Not whether it is ready now: another rebalance may have begun in the same turn.
            if app.ownership.was_ready and not app.crashed:
                gc.collect()
                gc.freeze()  # modules and the app live as long as the process
                on_ready()
            await _until_any(told.wait(), app._crashed.wait())
            app.stopping = True
            if not app.crashed:
                await _until_any(_tell(app.before_stop), hurry.wait(), app._crashed.wait())
        except Exception as error:  # noqa: BLE001 - whatever it is, services must be stopped
            app.crash_reason = error
            app._crashed.set()
        return await _stop(app)
    finally:
        watchdog.stop()
        await _tell(app.after_stop)


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return what the first SIGTERM or SIGINT sets, and what any further one sets (no drain)."""
    told, hurry = asyncio.Event(), asyncio.Event()

    def tell() -> None:
        (hurry if told.is_set() else told).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, tell)
    return told, hurry


async def _stop(app: RoleApp) -> int:
    code = _exit_code(app)
    app.stopping = True
    try:
        await asyncio.wait_for(app.stop(), STOP_WITHIN_S)
    except TimeoutError:
        log.error("stop_took_too_long", within_s=STOP_WITHIN_S)
        # Service threads and stores of a half-stopped app would keep the process.
        os._exit(code or EXIT_INFRASTRUCTURE)
    code = code or _exit_code(app)
    if code == 0:
        app.note("stopped")
    return code


async def _tell(hooks: list[Callable[[], Awaitable[None]]]) -> None:
    for hook in hooks:
        await hook()


def _exit_code(app: RoleApp) -> int:
    if not app.crashed:
        return 0
    reason = app.crash_reason
    kind = type(reason).__name__
    if isinstance(reason, RowmillError):
        log.error("worker_failed", reason=str(reason), kind=kind)
        return reason.exit_code
    # Not an error that was foreseen: its place is what helps.
    log.error("worker_failed", reason=str(reason), kind=kind, exc_info=reason)
    return EXIT_INFRASTRUCTURE if isinstance(reason, KafkaError | OSError) else EXIT_CRASH


async def _until_any(*waits: Awaitable[object]) -> None:
    """Wait until one is done, cancel the others. Raises what that one raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
