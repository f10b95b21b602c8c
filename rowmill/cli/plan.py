"""`rowmill plan`: what a run would ask and cost, before anything is called."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from rowmill.cli.run import Encoding, Force, Input, Json, Limit, Param, Play, RetryFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rowmill.cli.prepare import Order
    from rowmill.client.plan import Plan, PlannedTool


def plan(
    play: Play,
    input: Input,
    limit: Limit = None,
    param: Param = None,
    encoding: Encoding = None,
    force: Force = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
) -> None:
    """Say what a run would ask and what it would cost; nothing is called.

    Examples:

      rowmill plan play.py --input leads.csv

      rowmill plan play.py --input leads.csv --retry-failed --json

    Rows are worked out as far as receipts answer. A call that none answers is counted once, however
    many rows ask it; what depends on its answer is told as a bound. Needs the broker for the
    receipts, and starts it where this machine's is not running.
    """
    from rowmill.cli.check import parsed_params
    from rowmill.cli.prepare import Order
    from rowmill.client.plan import to_json_text

    order = Order(
        play=play,
        input=input,
        params=parsed_params(param or []),
        limit=limit,
        encoding=encoding,
        force=force,
        retry_failed=retry_failed,
    )
    found = _planned(order)
    if as_json:
        typer.echo(to_json_text(found))
        return
    for line in _lines(found):
        typer.echo(line)


def _planned(order: Order) -> Plan:
    from rowmill.cli.prepare import prepare
    from rowmill.cli.words import plain
    from rowmill.client.plan import Planner, receipt_shelf
    from rowmill.client.receipts import read_receipts
    from rowmill.ops.supervisor import control
    from rowmill.settings import Settings

    def note(text: str) -> None:
        typer.echo(plain(text), err=True)

    prepared = prepare(order, Settings(), secrets=False)
    for warning in prepared.warnings:
        note(f"{order.input}: {warning}")
    with receipt_shelf() as shelf:
        settings = prepared.settings
        broker = control.ensure(settings, [], {}, note=note) if settings.embedded else nullcontext()
        with broker:
            asyncio.run(read_receipts(settings, shelf.apply))
        now_ms = time.time_ns() // 1_000_000
        wanted = prepared.work.options.force
        planner = Planner(prepared.play, shelf, settings, now_ms, wanted)
        return asyncio.run(planner.work_out(prepared.source))


def _lines(plan: Plan) -> Iterator[str]:
    from rowmill.cli.words import amount

    ends = {"duplicates": plan.duplicates, "refused": plan.refused, "skipped": plan.skipped}
    ends["failing in the play's own code"] = plan.failing
    told = [f"{count:,} {name}" for name, count in ends.items() if count]
    yield f"rows      {plan.total:,}{': ' if told else ''}{', '.join(told)}"
    for planned in plan.tools.values():
        yield f"tool      {_of_tool(planned)}"
    known = sum(planned.known for planned in plan.tools.values())
    following = sum(planned.following for planned in plan.tools.values())
    cost = sum(planned.cost for planned in plan.tools.values())
    cost_max = sum(planned.cost_max for planned in plan.tools.values())
    yield f"calls     {known:,}{f', and up to {following:,} that depend on answers' if following else ''}"
    yield f"cost      {amount(cost)}{f' to {amount(cost_max)}' if cost_max > cost else ''}"
    least, most = plan.least_s(following=False), plan.least_s(following=True)
    if most is not None:
        yield f"time      by the providers' limits at least {_time(least or 0)}{_to(least, most)}"
    if plan.resolvers:
        names = ", ".join(plan.resolvers)
        yield f"unknown   what {names} will ask: the code names no tool of the play"


def _of_tool(planned: PlannedTool) -> str:
    from rowmill.cli.words import amount

    limits = ", ".join(f"{rate.calls} per {rate.per_s:g} s" for rate in planned.provider.limits)
    following = f", up to {planned.following:,} may follow" if planned.following else ""
    return (
        f"{planned.tool.id}: {planned.known:,} calls{following}, {planned.answered:,} answered by "
        f"receipts; {amount(planned.tool.cost)} each; limits of {planned.provider.id}: "
        f"{limits or 'none'}"
    )


def _to(least: float | None, most: float) -> str:
    return "" if least == most else f", with those that may follow {_time(most)}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
