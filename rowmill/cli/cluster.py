"""`rowmill up`, `down`, `status`, `worker`: the processes of one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from rowmill.settings import Settings

Plays = Annotated[
    list[Path] | None,
    typer.Option(
        "--plays", metavar="DIR", help="Folder that plays may be loaded from; default: this one."
    ),
]
Count = Annotated[int, typer.Option(min=0, metavar="N", help="Processes of this role.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def up(plays: Plays = None, rows: Count = 1, dispatch: Count = 1, sink: Count = 1) -> None:
    """Start broker, topics and workers, and leave them running.

    Returns once every worker is ready. `rowmill down` stops what this started.
    """
    from rowmill.ops.supervisor import control

    settings = Settings()
    folders = plays or [Path.cwd()]
    roles = {"rows": rows, "dispatch": dispatch, "sink": sink}
    control.up(settings, folders, roles, note=_note)  # type: ignore[arg-type]  # keys are roles
    status(as_json=False)


def down() -> None:
    """Stop the workers, letting open calls end, and the broker that `rowmill up` started."""
    from rowmill.ops.supervisor import control

    if not control.down(Settings(), note=_note):
        _note("nothing was running")


def status(as_json: Json = False) -> None:
    """Show the broker and the workers of this machine."""
    from rowmill.ops.supervisor.status import status as look

    found = look(Settings())
    if as_json:
        typer.echo(json.dumps(found))
        return
    kafka = found["kafka"]
    process = f"pid {kafka['pid']}" if kafka["pid"] else "no broker of this home"
    typer.echo(f"kafka        {_word(kafka['ready'])}  {kafka['bootstrap']}  {process}")
    for each in found["workers"]:
        process = f"pid {each['pid']}" if each["pid"] else "being started"
        name = f"{each['role']}-{each['index']}"
        typer.echo(f"{name:<12} {_word(each['ready'])}  {process}")
    if not found["workers"]:
        typer.echo("no workers; start them: rowmill up")


def worker(
    role: Annotated[Literal["rows", "dispatch", "sink"], typer.Argument(help="What it does.")],
    index: Annotated[int, typer.Option(min=0, help="Number among its role's on this home.")] = 0,
    plays: Plays = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run one worker in the foreground, until SIGTERM or Ctrl-C; open calls end first."""
    from rowmill.ops.supervisor import worker as one

    folders = [folder.resolve() for folder in plays or [Path.cwd()]]
    raise typer.Exit(one.run(role, index, Settings(), folders, supervised=supervised))


def _note(line: str) -> None:
    typer.echo(line, err=True)


def _word(ready: bool) -> str:
    return "ready    " if ready else "not ready"
