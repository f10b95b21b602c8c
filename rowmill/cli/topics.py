"""`rowmill topics`: what flows through Kafka, made and looked at."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rowmill.topics.creation import TopicListing

# aiokafka and pydantic are imported inside the commands: help must not wait for them.

app = typer.Typer(
    no_args_is_help=True,
    help="""Create and list the topics.

    Examples:

      rowmill topics create       what is missing; nothing is altered

      rowmill topics list         partitions, retention, records, what flows

      rowmill topics list --json  the same for a script

    `rowmill up` and `rowmill run` create them by themselves; where workers may
    not, an operator does, with the same ROWMILL_PARTITIONS and
    ROWMILL_REPLICATION as in the settings of the workers.
    """,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]

_DAY_MS = 86_400_000


@app.command()
def create() -> None:
    """Create the topics that are missing. Exit code 3 if one exists with other partitions.

    Example: ROWMILL_REPLICATION=3 rowmill topics create
    """
    from rowmill.settings import Settings
    from rowmill.topics import creation

    made = creation.create(Settings())
    for name in made:
        typer.echo(name)
    typer.echo(f"{len(made)} created, {len(creation.ALL_TOPICS) - len(made)} were there.", err=True)


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """Show each topic: key, partitions, retention, cleanup, records, what flows.

    Records counts offsets from start to end: an upper bound where compaction leaves gaps.

    Example: rowmill topics list
    """
    from rowmill.settings import Settings
    from rowmill.topics import creation

    topics = creation.listed(Settings())
    if as_json:
        typer.echo(json.dumps([asdict(topic) for topic in topics]))
        return
    for line in _table([_row(topic) for topic in topics]):
        typer.echo(line)
    if not all(topic.partitions for topic in topics):
        typer.echo("missing topics are created by: rowmill topics create", err=True)


def _row(topic: TopicListing) -> list[str]:
    retention = "-" if topic.retention_ms is None else f"{topic.retention_ms // _DAY_MS} days"
    partitions = str(topic.partitions or "missing")
    records = str(topic.records)
    return [topic.name, topic.key, partitions, retention, topic.cleanup, records, topic.flows]


def _table(rows: list[list[str]]) -> list[str]:
    """Return aligned lines under a head; as wide as needed, so that a pipe gets whole words."""
    head = ["topic", "key", "partitions", "retention", "cleanup", "records", "what flows"]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]
