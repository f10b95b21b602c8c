"""Which command of a run asks, and what it asks again (R2): pure decisions.

A run id may be driven by several commands: resumes of one, or new ones that ask again. Only the
latter get a number of their own. The number is part of the force token, so one command buys each
answer once, whatever it is replayed; and it is kept with each row's ending, so one command runs a
failed row once more and no replay of it runs that row a third time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Force = Literal["all", "failed"]

INTERRUPTED = ("claiming", "open", "paused")
"""States of a run whose command has not come to its end: giving it again goes on with it."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a command asks again (None: nothing that has an answer), and its number in the run."""

    force: Force | None = None
    number: int = 0


def next_command(wanted: Force | None, held: Command | None, state: str = "") -> Command:
    """Return the command that a claimant of the run drives.

    Args: `wanted`: what the user asks for now; `held`: the run's last command, None for a new run;
    `state`: the run's. A command without a wish goes on with the held one. The same wish given again
    goes on too where that was interrupted; `all` also where it was stopped, as nothing is to be
    bought twice by repeating oneself. Every other wish is a new command.
    """
    if held is None:
        return Command(wanted)
    if wanted is None:
        return held
    goes_on = state in INTERRUPTED or (wanted == "all" and state == "stopped")
    if wanted == held.force and goes_on:
        return held
    return Command(wanted, held.number + 1)


def runs_again(status: str, ended_by: int, command: Command) -> bool:
    """Say whether a row that has an ending runs once more.

    Args: `status` of its ending; `ended_by`: number of the command whose ending that is.
    """
    return status == "failed" and command.force == "failed" and ended_by < command.number


def force_token(run: str, number: int) -> str:
    """Return the token of a run's forced asks: a receipt serves it once (R2)."""
    return f"{run}:{number}"
