"""`rowmill kafka`: the embedded broker, apart from any run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rowmill.ops.kafka.embedded import BrokerStatus
    from rowmill.settings import Settings

# Pydantic, psutil and asyncio are imported inside the commands: help must not wait for them.

EXIT_NOT_READY = 3

app = typer.Typer(
    no_args_is_help=True,
    help="""Start, stop and look at the embedded Kafka broker.

    Examples:

      rowmill kafka start                          fetches Kafka once, then 3 s

      ROWMILL_KAFKA_PORT=9192 rowmill kafka start  where 9092 is taken

      rowmill kafka status --json                  where other clients find it

    `rowmill run` and `rowmill up` start it by themselves. It keeps its data below
    ROWMILL_HOME over restarts, and listens on 127.0.0.1 only. Where ROWMILL_KAFKA
    names a cluster, nothing is started.
    """,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def start(as_json: Json = False) -> None:
    """Start the broker unless it runs; return once it answers.

    Example: rowmill kafka start
    """
    from rowmill.ops.kafka import embedded
    from rowmill.settings import Settings

    settings = Settings()
    if not settings.embedded:
        typer.echo(_named(settings), err=as_json)
        if as_json:
            _print_json(embedded.status(settings))
        return
    broker = embedded.start(settings, report=lambda line: typer.echo(line, err=True))
    if as_json:
        _print_json(embedded.status(settings))
        return
    state = "runs already" if broker.already_running else "is ready"
    typer.echo(f"Kafka {state} at {broker.bootstrap} (pid {broker.pid}), data in {broker.data_dir}")


@app.command()
def stop() -> None:
    """Stop the broker; its data stays.

    Example: rowmill kafka stop
    """
    from rowmill.ops.kafka import embedded
    from rowmill.settings import Settings

    settings = Settings()
    stopped = embedded.stop(settings)
    typer.echo("Kafka is stopped; its data stays." if stopped else "No broker of this home runs.")
    if not settings.embedded:
        typer.echo(_named(settings))


@app.command()
def status(as_json: Json = False) -> None:
    """Show the broker: pid, address, memory, data. Exit code 0 if it answers, else 3.

    Example: rowmill kafka status --json
    """
    from rowmill.ops.kafka import embedded
    from rowmill.settings import Settings

    settings = Settings()
    found = embedded.status(settings)
    if as_json:
        _print_json(found)
    else:
        typer.echo(_described(found))
        if not settings.embedded:
            typer.echo(_named(settings))
    if not found.ready:
        raise typer.Exit(EXIT_NOT_READY)


def _named(settings: Settings) -> str:
    return f"Nothing is started: ROWMILL_KAFKA names the cluster {settings.kafka}."


def _print_json(found: BrokerStatus) -> None:
    typer.echo(json.dumps(asdict(found) | {"pid": found.pid or None}, default=str))


def _described(found: BrokerStatus) -> str:
    if not found.running:
        return (
            f"No broker of this home runs (data: {found.data_dir}). Start it: rowmill kafka start"
        )
    state = "ready" if found.ready else "running, does not answer"
    return (
        f"Kafka {found.kafka} {state} at {found.bootstrap}, pid {found.pid}, {found.rss_mb} MiB, "
        f"up {found.uptime_s:.0f} s\ndata {found.data_dir}\nlog  {found.log}"
    )
