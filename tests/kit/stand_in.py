"""A supervisor and workers without Kafka, for tests of how processes are kept.

Run as a program: `stand_in.py supervisor PLAN`, `stand_in.py worker ROLE INDEX`, and
`stand_in.py use`, which has workers up until it is killed. All is the product's code but the
roles' mains and what touches topics. A file `{home}/behave-ROLE` holds what
that role does instead of working: a list of the words below.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from rowmill.errors import InfrastructureError, RowmillError, UsageError
from rowmill.ops.supervisor import control, spawn, supervisor, worker
from rowmill.ops.supervisor.layout import Role
from rowmill.settings import Settings
from rowmill.topics import creation

REFUSE_USAGE = "refuse-usage"
REFUSE_INFRASTRUCTURE = "refuse-infrastructure"
IGNORE_TERM = "ignore-term"
NEVER_READY = "never-ready"


def behave(home: Path, role: Role, *words: str) -> None:
    """Make that role's workers do so from their next start on."""
    (home / f"behave-{role}").write_text(" ".join(words))


def command(*arguments: str) -> list[str]:
    """Return the command line of this program."""
    return [sys.executable, "-P", __file__, *arguments]


def supervisor_command(plan: str) -> list[str]:
    """Stands in for `spawn.supervisor_command`."""
    return command("supervisor", plan)


def _worker_command(role: Role, index: int, play_folders: Sequence[Path]) -> list[str]:
    return command("worker", role, str(index))


def _role_main(role: Role) -> worker.RoleMain:
    def main(
        settings: Settings, store: Path, on_ready: Callable[[], None], play_folders: Sequence[Path]
    ) -> int:
        behaviour = settings.home / f"behave-{role}"
        words = behaviour.read_text().split() if behaviour.exists() else []
        if REFUSE_USAGE in words:
            raise UsageError("play x.py, line 3: no such column.")
        if REFUSE_INFRASTRUCTURE in words:
            raise InfrastructureError("the store is full.")
        stop = threading.Event()
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN if IGNORE_TERM in words else lambda *_: stop.set()
        )
        if NEVER_READY not in words:
            on_ready()
        while not stop.wait(0.05):
            pass
        return 0

    return main


def _check(settings: Settings) -> None:
    """Stands in for `creation.check`."""


async def _create_topics(settings: Settings) -> list[str]:
    """Stands in for `creation.create_topics`."""
    return []


def _run(arguments: list[str]) -> int:
    worker.role_main = _role_main
    creation.check = _check
    creation.create_topics = _create_topics
    spawn.worker_command = _worker_command
    setattr(supervisor, "KILL_AFTER_DRAIN_S", 0.5)  # noqa: B010  # imported there, not its own
    match arguments:
        case ["supervisor", plan]:
            return supervisor.main(supervisor.Plan.model_validate_json(plan), Settings())
        case ["worker", "rows" | "dispatch" | "sink" as role, index]:
            return worker.run(role, int(index), Settings(), [], supervised=True)
        case ["use"]:
            spawn.supervisor_command = supervisor_command
            with control.ensure(Settings(), [Path.cwd()], {"rows": 1}):
                signal.pause()
    raise ValueError(f"not a command of the stand-in: {arguments}")


if __name__ == "__main__":
    try:
        sys.exit(_run(sys.argv[1:]))
    except RowmillError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
