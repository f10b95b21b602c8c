"""Carry out a prepared order: start what is missing, drive the run, export, stop what was started."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import uvloop

from rowmill.cli.endings import resume_command
from rowmill.cli.export import write_out
from rowmill.cli.prepare import Prepared
from rowmill.cli.progress import console, shown
from rowmill.client import Run, RunReport, connect
from rowmill.client.claims import LifeLost
from rowmill.client.workers import missing_roles
from rowmill.errors import InfrastructureError, Interrupted
from rowmill.ops import logs
from rowmill.ops.supervisor import control, logfiles, records
from rowmill.ops.supervisor.layout import Layout, Role
from rowmill.settings import Settings

Note = Callable[[str], None]
Tell = Callable[[RunReport], None]
T = TypeVar("T")


def drive(prepared: Prepared, *, note: Note, tell: Tell) -> RunReport:
    """Run to the end; `tell` is told the report before the workers are stopped.

    Raises: Interrupted after Ctrl-C, once `paused` is durable; RowmillErrors of all kinds.
    """
    settings = prepared.settings
    with _logging_to_file(settings):
        roles = _roles_to_start(settings)
        if not roles:
            return _run_loop(_driven(prepared, lambda: None, note, tell))
        with control.ensure(settings, [prepared.play_folder], roles, note=note) as workers:
            return _run_loop(_driven(prepared, workers.check, note, tell))


def _roles_to_start(settings: Settings) -> dict[Role, int]:
    """Return the roles this command needs on this machine.

    All with the embedded broker, and where this home has workers already (they may end with another
    run, so this one must say that it uses them). On a cluster only those that nobody serves.
    """
    if settings.embedded or records.live_supervisor(Layout.of(settings)) is not None:
        return dict(control.ONE_OF_EACH)
    missing = _run_loop(missing_roles(settings))
    return {role: count for role, count in control.ONE_OF_EACH.items() if role in missing}


def _run_loop(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def _driven(
    prepared: Prepared, check: Callable[[], None], note: Note, tell: Tell
) -> RunReport:
    stop = asyncio.Event()
    with _stopped_by_signals(stop):
        async with connect(prepared.settings) as mill:
            begun = await _unless(
                stop,
                mill.begin(prepared.work, prepared.source, run_id=prepared.order.run_id, note=note),
            )
            begun.watch(check)
            try:
                return await _to_the_end(prepared, begun, stop, note, tell)
            finally:
                await begun.close()


async def _to_the_end(
    prepared: Prepared, run: Run, stop: asyncio.Event, note: Note, tell: Tell
) -> RunReport:
    if run.finished_before:
        note(f"run {run.id} has finished before; nothing is fed")
    elif run.resumed:
        note(f"run {run.id} goes on, life {run.life}")
    else:
        note(f"run {run.id}")
    try:
        async with shown(run, console()):
            report = await _unless(stop, run.done())
        if prepared.order.out is not None:
            await asyncio.to_thread(write_out, prepared, prepared.order.out, run.id)
            report = report.model_copy(update={"out": str(prepared.order.out)})
        report = report.model_copy(update={"warnings": list(prepared.warnings)})
    except Interrupted:
        report = await run.pause("Ctrl-C")
        tell(report)
        raise Interrupted(f"Paused. Resume: {resume_command(run.id)}") from None
    except LifeLost:
        raise
    except InfrastructureError:
        note(f"To go on with run {run.id}: {resume_command(run.id)}")
        raise
    tell(report)
    return report


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`. Raises: Interrupted once `stop` is set, the work cancelled."""
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Interrupted("Stopped before the run began; nothing was called.")
    finally:
        for each in (task, stopping):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task, stopping])


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at the first Ctrl-C or SIGTERM; the second quits at once."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            # Whatever is being waited for may never come; workers that this command started end by
            # themselves once it is gone.
            os._exit(Interrupted.exit_code)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextmanager
def _logging_to_file(settings: Settings) -> Iterator[None]:
    """Send log lines to `logs/run.log`: standard error is the user's."""
    layout = Layout.of(settings)
    layout.prepare()
    path = layout.home / "logs" / "run.log"
    logfiles.cut(path)
    logs.configure(settings)
    with open(logfiles.open_for_append(path), "a", encoding="utf-8") as file:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(file)
        yield
        logging.getLogger().handlers.clear()
