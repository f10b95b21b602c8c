"""The root command: groups are imported when they are called, errors become one sentence.

Importing a group may cost Kafka, pydantic or SQLAlchemy; `rowmill --help` must answer in 0.4 s.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rowmill.cli.faults import exit_code_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is: `attribute` of `module`, a typer app or a function; `short`: its help."""

    module: str
    attribute: str
    short: str


COMMANDS: dict[str, Place] = {
    "run": Place("rowmill.cli.run", "run", "Run a play over an input, from start to sheet."),
    "check": Place("rowmill.cli.check", "check", "Check a play and an input; nothing is called."),
    "plan": Place("rowmill.cli.plan", "plan", "Say what a run would ask and cost, uncalled."),
    "runs": Place("rowmill.cli.runs", "app", "List runs, show one."),
    "receipts": Place(
        "rowmill.cli.receipts", "app", "List receipts of calls, show one, forget some."
    ),
    "sheet": Place("rowmill.cli.sheet", "app", "Look at the sheet, export it."),
    "up": Place("rowmill.cli.cluster", "up", "Start broker, topics and workers, and leave them."),
    "down": Place("rowmill.cli.cluster", "down", "Stop what `up` started."),
    "status": Place("rowmill.cli.cluster", "status", "Show the broker and the workers."),
    "worker": Place("rowmill.cli.cluster", "worker", "Run one worker in the foreground."),
    "kafka": Place("rowmill.cli.kafka", "app", "Start, stop and look at the embedded broker."),
    "topics": Place("rowmill.cli.topics", "app", "Create and list the topics."),
    "provider": Place("rowmill.cli.provider", "provider", "A provider to practise on."),
}

HELP = """Enrich rows through paid, rate-limited HTTP providers: as fast as allowed, nothing paid
twice, nothing lost.

Examples:

  rowmill check examples/sp500/play.py

  rowmill run play.py --input leads.csv --limit 5

  rowmill run play.py --input leads.csv --out enriched.csv

  rowmill runs list
"""


class LazyGroup(TyperGroup):
    """Knows the names of all commands, and imports one only when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, the most used first."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stub with the command's short help: enough for the list in `--help`."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        return TyperCommand(cmd_name, help=place.short, callback=lambda: None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command itself and the arguments left for it."""
        name, stub, rest = super().resolve_command(ctx, args)
        if name is None or stub is None:
            return name, stub, rest
        return name, load(name, COMMANDS[name]), rest


def load(name: str, place: Place) -> Any:
    """Import a command. Plain help: rich's costs another 0.1 s and reads brackets as markup."""
    found = getattr(import_module(place.module), place.attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        found = single
    found.rich_markup_mode = None
    found._add_completion = False
    command = get_command(found)
    command.name = name
    return command


root = typer.Typer(
    cls=LazyGroup, help=HELP, no_args_is_help=True, rich_markup_mode=None, add_completion=True
)


@root.callback()
def _root() -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Nothing is raised."""
    # A command that sets up no logging of its own shows its errors as sentences only.
    logging.getLogger().addHandler(logging.NullHandler())
    os.umask(0o077)  # sheets, stores and logs hold what was paid for
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        outcome = get_command(root).main(args=given, prog_name="rowmill", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the last door: everything becomes an exit code
        return exit_code_of(error)
    return outcome if isinstance(outcome, int) else 0
