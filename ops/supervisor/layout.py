"""Where one state directory keeps what the supervisor and its workers leave there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rowmill.settings import Settings

Role = Literal["rows", "dispatch", "sink"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one `home`."""

    home: Path

    @classmethod
    def of(cls, settings: Settings) -> Layout:
        """Return the layout of the settings' home, as an absolute path."""
        return cls(settings.home.expanduser().resolve())

    @property
    def supervisor_lock(self) -> Path:
        """Held by the one supervisor of this home for its whole life."""
        return self.home / "supervisor.lock"

    @property
    def supervisor_record(self) -> Path:
        """What that supervisor says about itself."""
        return self.home / "supervisor.json"

    @property
    def users_lock(self) -> Path:
        """Shared by every command that needs the workers; free: nobody does."""
        return self.home / "users.lock"

    def worker_lock(self, role: Role, index: int) -> Path:
        """Held by that worker for its whole life."""
        return self.home / "workers" / f"{role}-{index}.lock"

    def worker_record(self, role: Role, index: int) -> Path:
        """What that worker says about itself."""
        return self.home / "workers" / f"{role}-{index}.json"

    def worker_log(self, role: Role, index: int) -> Path:
        """Standard output and error of that worker."""
        return self.home / "logs" / f"{role}-{index}.log"

    @property
    def supervisor_log(self) -> Path:
        """Standard output and error of the supervisor."""
        return self.home / "logs" / "supervisor.log"

    def store(self, role: Role, index: int) -> Path:
        """Return the directory of that worker's tables."""
        return self.home / "stores" / f"{role}-{index}"

    def prepare(self) -> None:
        """Create the folders, for this user only."""
        for folder in (self.home, self.home / "workers", self.home / "logs", self.home / "stores"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
