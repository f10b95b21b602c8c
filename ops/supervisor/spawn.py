"""How supervisor and workers are started: their arguments, environment and descriptors."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from rowmill.ops.supervisor import logfiles
from rowmill.ops.supervisor.layout import Layout, Role
from rowmill.settings import Settings

# -P: the folder that the user stands in must not shadow modules of ours (`token.py` is enough).
_PYTHON = (sys.executable, "-P", "-m")


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment in which a child reads exactly these settings.

    Flags of this command are not in its environment; environment beats files, so all are named.
    Secrets go this way too: other users can read arguments, not an environment.
    """
    variables = dict(os.environ)
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        elif isinstance(value, Path):
            value = value.expanduser().resolve()
        if value is not None:
            variables[f"ROWMILL_{name.upper()}"] = str(value)
    return variables


def supervisor_command(plan: str) -> list[str]:
    """Return the command of a supervisor; `plan`: a `Plan` as JSON."""
    return [*_PYTHON, "rowmill.ops.supervisor", plan]


def worker_command(role: Role, index: int, play_folders: Sequence[Path]) -> list[str]:
    """Return the command of a supervised worker: the one that a user may type, and one flag."""
    folders = [argument for folder in play_folders for argument in ("--plays", str(folder))]
    return [*_PYTHON, "rowmill", "worker", role, "--index", str(index), "--supervised", *folders]


def start_supervisor(settings: Settings, layout: Layout, plan: str) -> subprocess.Popen[bytes]:
    """Start a supervisor in a session of its own, so that Ctrl-C here does not reach it."""
    log = logfiles.open_for_append(layout.supervisor_log)
    try:
        return subprocess.Popen(
            supervisor_command(plan),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(settings),
            start_new_session=True,
        )
    finally:
        os.close(log)


async def start_worker(
    settings: Settings, layout: Layout, role: Role, index: int, play_folders: Sequence[Path]
) -> asyncio.subprocess.Process:
    """Start one worker. Its standard input is a pipe that closes when this process is gone."""
    logfiles.cut(layout.worker_log(role, index))
    log = logfiles.open_for_append(layout.worker_log(role, index))
    try:
        return await asyncio.create_subprocess_exec(
            *worker_command(role, index, play_folders),
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment(settings),
        )
    finally:
        os.close(log)
