"""What a run leaves on the terminal: the counts, why rows failed, what to do next."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rowmill.cli.words import amount, clock, plain

if TYPE_CHECKING:
    from rowmill.client import RunReport

REASONS_SHOWN = 5
COUNTED = ("completed", "failed", "skipped", "duplicates", "pending", "cancelled")


def end_block(report: RunReport, again: str) -> Iterator[str]:
    """Yield the lines that a finished or stopped run ends with.

    `again`: the command that goes on or retries, "" where that is said elsewhere.
    """
    parts = [
        f"{rows:,} {name}"
        for name in COUNTED
        if (rows := getattr(report, name)) or name == "completed"
    ]
    word = {"finished": "done", "stopped": "stopped"}.get(report.state, report.state)
    yield (
        f"{word}  {report.total:,} = {' + '.join(parts)}  {clock(report.wall_s)}  "
        f"{report.calls:,} calls, {report.calls_reused:,} reused, spent {amount(report.spent)}"
    )
    if report.life.number > 1:
        yield f"this command: {report.life.rows:,} rows, {report.life.calls:,} calls"
    if report.failures:
        shown = [
            f"{failure.rows:,}x {plain(failure.error)}" if failure.rows > 1
            else f"row {failure.first_index + 1:,}: {plain(failure.error)}"
            for failure in report.failures[:REASONS_SHOWN]
        ]  # fmt: skip
        yield f"failed: {'; '.join(shown)}"
    if report.state == "stopped" and report.reason:
        yield f"stopped: {plain(report.reason)}; {report.pending:,} rows wait"
    if report.exit_code and again:
        yield f"again: {again}"
    written = f"     out: {report.out}" if report.out else ""
    yield f"run: {report.run_id}     sheet: {report.sheet}{written}"


def resume_command(run_id: str) -> str:
    """Return the command that goes on with this run.

    A script that starts `rowmill run` for its user says in ROWMILL_AGAIN how it was started.
    """
    started = os.environ.get("ROWMILL_AGAIN")
    if started:
        return f"{started} --run-id {run_id}"
    return shlex.join([*_program(), *_without_run_id(sys.argv[1:]), "--run-id", run_id])


def new_run_command() -> str:
    """Return the command that asks again for what failed: a new run reuses every paid answer."""
    started = os.environ.get("ROWMILL_AGAIN")
    if started:
        return started
    arguments = [word for word in sys.argv[1:] if word not in ("--force", "--retry-failed")]
    return shlex.join([*_program(), *_without_run_id(arguments)])


def _program() -> list[str]:
    if os.path.basename(sys.argv[0]).startswith("rowmill"):
        return [sys.argv[0] if os.sep in sys.argv[0] and not _on_path(sys.argv[0]) else "rowmill"]
    return [sys.executable, "-m", "rowmill"]


def _on_path(program: str) -> bool:
    import shutil

    found = shutil.which("rowmill")
    return found is not None and os.path.realpath(found) == os.path.realpath(program)


def _without_run_id(arguments: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--run-id":
            skip = True
        elif not argument.startswith("--run-id="):
            kept.append(argument)
    return kept
