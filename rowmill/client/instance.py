"""The id of this state directory: mains that share it can see each other's locks."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from rowmill.errors import InfrastructureError


def instance_id(home: Path) -> str:
    """Return the id kept in `home`, made at first use. Raises: InfrastructureError."""
    path = home / "instance"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            found = path.read_text(encoding="ascii").strip()
            if found:
                return found
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)  # a former process died here
        made = secrets.token_hex(8)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{made}\n")
    except OSError as error:
        raise InfrastructureError(
            f"Can't write to {home}: {error.strerror}. Choose another with ROWMILL_HOME=DIRECTORY."
        ) from error
    return path.read_text(encoding="ascii").strip()
