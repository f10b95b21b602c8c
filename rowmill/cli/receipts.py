"""`rowmill receipts`: what was bought, and how to forget it."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rowmill.streams.core.receipts import Receipt

app = typer.Typer(
    no_args_is_help=True,
    help="""List receipts, show one, forget some.

    A receipt is the kept answer of one call: while it is there, the same question costs nothing.

    Examples:

      rowmill receipts list --tool registry.profile --state failed

      rowmill receipts show 3f9a1c0d5e7b42a6a1b2c3d4e5f60718

      rowmill receipts forget 3f9a1c0d5e7b42a6a1b2c3d4e5f60718
    """,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
State = Literal["queued", "running", "completed", "failed", "skipped"]


@app.command(name="list")
def list_(
    tool: Annotated[str | None, typer.Option("--tool", metavar="ID", help="Of one tool.")] = None,
    state: Annotated[State | None, typer.Option("--state", help="In one state.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The newest N.")] = 100,
    as_json: Json = False,
) -> None:
    """List receipts, the newest first.

    Example: rowmill receipts list --state failed --limit 20
    """
    from rowmill.cli.words import amount, plain
    from rowmill.client.receipts import list_receipts
    from rowmill.settings import Settings

    found = asyncio.run(list_receipts(Settings(), tool=tool, state=state, limit=limit))
    if as_json:
        from msgspec import to_builtins

        typer.echo(json.dumps(to_builtins(found), ensure_ascii=False))
        return
    for look in found:
        typer.echo(
            f"{plain(look.key):<32}  {look.state:<9}  {plain(look.tool)}  {look.sends:,} sends  "
            f"{amount(look.cost)}  {_time(look.settled_wall_ms or look.opened_wall_ms)}"
            f"{'  ' + plain(look.failure) if look.failure else ''}"
        )
    if not found:
        typer.echo("no such receipts", err=True)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="The receipt's key.")], as_json: Json = False
) -> None:
    """Show one receipt: what was answered, whose question it was, what it cost.

    Example: rowmill receipts show 3f9a1c0d5e7b42a6a1b2c3d4e5f60718 --json
    """
    from rowmill.cli.words import plain
    from rowmill.client.receipts import find_receipt
    from rowmill.errors import UsageError
    from rowmill.settings import Settings

    receipt = asyncio.run(find_receipt(Settings(), key))
    if receipt is None:
        raise UsageError(f"No receipt {plain(key)!r}; see: rowmill receipts list.")
    if as_json:
        from msgspec import to_builtins

        typer.echo(json.dumps({"schema": 1, **to_builtins(receipt)}, ensure_ascii=False))
        return
    _print(receipt)


@app.command()
def forget(
    keys: Annotated[list[str], typer.Argument(help="Receipts' keys; - reads them from stdin.")],
    as_json: Json = False,
) -> None:
    """Forget receipts: the next ask of each buys anew. An open call is left alone.

    Example: rowmill receipts forget 3f9a1c0d5e7b42a6a1b2c3d4e5f60718
    """
    from rowmill.cli.words import plain
    from rowmill.client.forgetting import forget_receipts
    from rowmill.settings import Settings

    if keys == ["-"]:
        keys = [word for line in sys.stdin for word in line.split()]
    wishes = asyncio.run(forget_receipts(Settings(), keys))
    if as_json:
        typer.echo(json.dumps([{"key": wish.key, "outcome": wish.outcome} for wish in wishes]))
    else:
        for wish in wishes:
            typer.echo(f"{plain(wish.key)}  {_SENTENCES[wish.outcome]}")
    if any(wish.outcome != "forgotten" for wish in wishes):
        raise typer.Exit(1)


_SENTENCES = {
    "forgotten": "forgotten",
    "unknown": "there is no such receipt",
    "open": "its call is under way: left alone",
    "asked": "asked; it is forgotten once a dispatch worker runs (rowmill status)",
}


def _print(receipt: Receipt) -> None:
    from rowmill.cli.words import amount, plain

    typer.echo(f"receipt   {plain(receipt.key)}  {receipt.state}")
    typer.echo(f"tool      {plain(receipt.tool)}  provider {plain(receipt.provider)}")
    if receipt.asker is not None:
        asker = receipt.asker
        typer.echo(f"asked by  run {plain(asker.run)}  row {plain(asker.row)}")
    settled = f"  settled {_time(receipt.settled_wall_ms)}" if receipt.settled_wall_ms else ""
    typer.echo(f"time      opened {_time(receipt.opened_wall_ms)}{settled}")
    deaths = f"  {receipt.deaths:,} ended by a worker's death" if receipt.deaths else ""
    typer.echo(f"paid      {receipt.sends:,} sends{deaths}  cost {amount(receipt.cost)}")
    if receipt.lease is not None:
        typer.echo(f"lease     {receipt.lease.duration_ms / 1000:g} s, epoch {receipt.lease.epoch}")
    if receipt.failure is not None:
        failure = receipt.failure
        again = "a rerun asks again" if failure.kind.asked_again else "asked again only by force"
        typer.echo(f"failure   {failure.kind}: {plain(failure.message)} ({again})")
    elif receipt.final:
        output = json.dumps(receipt.output, ensure_ascii=False)
        typer.echo(f"output    {plain(output, chars_max=2_000)}")


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
