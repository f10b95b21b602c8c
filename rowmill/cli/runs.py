"""`rowmill runs`: the runs of this cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rowmill.client.look import RunLook

app = typer.Typer(
    no_args_is_help=True,
    help="""List runs, show one.

    Examples:

      rowmill runs list

      rowmill runs show 7f3a9c01 --json
    """,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """List all runs, the newest last.

    Example: rowmill runs list --json
    """
    from rowmill.cli.words import plain

    looks = _looks(None)
    if as_json:
        typer.echo(json.dumps([_plain(look) for look in looks], ensure_ascii=False))
        return
    for look in looks:
        typer.echo(f"{look.run_id:<16} {look.state:<9} {_rows(look):<16} {plain(look.dataset)}")
    if not looks:
        typer.echo("no runs yet", err=True)


@app.command()
def show(run: Annotated[str, typer.Argument(help="The run id.")], as_json: Json = False) -> None:
    """Show how a run stands: counts, calls, what it was started with.

    Example: rowmill runs show 7f3a9c01
    """
    from rowmill.cli.words import amount, plain
    from rowmill.errors import UsageError

    found = _looks(run)
    if not found:
        raise UsageError(f"No run {plain(run)!r}; see: rowmill runs list.")
    look = found[0]
    if as_json:
        typer.echo(json.dumps(_plain(look), ensure_ascii=False))
        return
    counts = look.counts
    typer.echo(f"run      {look.run_id}  {look.state}  life {look.life}")
    if look.reason:
        typer.echo(f"reason   {plain(look.reason)}")
    typer.echo(f"dataset  {plain(look.dataset)}")
    typer.echo(f"play     {plain(look.play)}  digest {look.digest}")
    typer.echo(f"input    {plain(look.input or '-')}  {_rows(look)}")
    typer.echo(
        f"rows     {counts.completed:,} completed  {counts.failed:,} failed  "
        f"{counts.skipped:,} skipped  {counts.duplicates:,} duplicates  {counts.reused:,} reused"
    )
    for id_ in sorted({*counts.calls, *counts.calls_reused}):
        typer.echo(
            f"provider {plain(id_)}  {counts.calls.get(id_, 0):,.0f} calls  "
            f"{counts.calls_reused.get(id_, 0):,.0f} reused  spent "
            f"{amount(counts.spent.get(id_, 0))}"
        )


def _looks(run: str | None) -> list[RunLook]:
    import asyncio

    from rowmill.client.look import look_at_runs
    from rowmill.settings import Settings

    return asyncio.run(look_at_runs(Settings(), run))


def _rows(look: RunLook) -> str:
    total = f"{look.total:,}" if look.total is not None else "?"
    return f"{look.counts.ended:,}/{total} rows"


def _plain(look: RunLook) -> dict[str, Any]:
    return {
        "schema": 1,
        "run_id": look.run_id,
        "dataset": look.dataset,
        "state": look.state,
        "reason": look.reason,
        "life": look.life,
        "total": look.total,
        "started_at_ms": look.started_at_ms,
        "updated_at_ms": look.updated_at_ms,
        "play": look.play,
        "digest": look.digest,
        "input": look.input,
        **look.counts.to_json(),
    }
