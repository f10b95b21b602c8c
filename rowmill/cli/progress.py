"""How a run looks while it goes on: a live table on a terminal, elsewhere a line every 10 s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from rowmill.cli.words import amount, clock, plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rowmill.client import Run
    from rowmill.client.progress import Progress

LINE_EVERY_S = 10.0
TABLE_EVERY_S = 0.25


def console() -> Console:
    """Return the console of standard error; NO_COLOR and TERM=dumb are obeyed by rich."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


@asynccontextmanager
async def shown(run: Run, on: Console) -> AsyncIterator[None]:
    """Show the run's progress inside the block."""
    live = on.is_terminal and not on.is_dumb_terminal
    showing = asyncio.create_task(_table(run, on) if live else _lines(run, on), name="progress")
    try:
        yield
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing


async def _table(run: Run, on: Console) -> None:
    from rich.live import Live

    with Live(console=on, auto_refresh=False, transient=True) as live:
        while True:
            live.update(_rendered(run.progress()), refresh=True)
            await asyncio.sleep(TABLE_EVERY_S)


async def _lines(run: Run, on: Console) -> None:
    while True:
        await asyncio.sleep(LINE_EVERY_S)
        on.out(line(run.progress()))


def line(progress: Progress) -> str:
    """Return one line that says how the run stands."""
    counts = progress.counts
    parts = [f"{plain(progress.dataset)} {progress.run}", _done(progress)]
    if progress.rows_per_s is not None:
        parts.append(f"{progress.rows_per_s:.1f} rows/s")
    if progress.left_s is not None:
        parts.append(f"left {clock(progress.left_s)}")
    parts += [f"ok {counts.completed:,}", f"failed {counts.failed:,}"]
    if counts.skipped or counts.duplicates:
        parts += [f"skipped {counts.skipped:,}", f"duplicates {counts.duplicates:,}"]
    parts.append(f"running {progress.running:,}")
    if progress.phase == "writing the sheet" and progress.behind:
        parts.append(f"sheet {progress.behind:,} records behind")
    if progress.trouble:
        parts.append(plain(progress.trouble))
    return "  ".join(parts)


def _done(progress: Progress) -> str:
    ended, total = progress.counts.ended, progress.total
    if not total:
        return f"{ended:,} rows"
    return f"{ended:,}/{total:,} {100 * ended // total}%"


def _rendered(progress: Progress) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    counts = progress.counts
    table = Table(box=None, pad_edge=False, show_edge=False)
    for heading in ("provider", "calls", "reused", "spent"):
        table.add_column(heading, justify="left" if heading == "provider" else "right")
    for id_ in sorted({*counts.calls, *counts.calls_reused}):
        table.add_row(
            Text(plain(id_)),
            f"{counts.calls.get(id_, 0):,.0f}",
            f"{counts.calls_reused.get(id_, 0):,.0f}",
            amount(counts.spent.get(id_, 0)),
        )
    head = Text(line(progress), no_wrap=True, overflow="ellipsis")
    if progress.trouble:
        head.stylize("yellow")
    elif counts.failed:
        head.stylize("bold")
    return Group(head, table) if table.row_count else head
