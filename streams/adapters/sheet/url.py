"""From a sheet's URL to its file: what is wrong with it is said here, in a sentence."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from rowmill.streams.ports import SheetUnusable

SQLITE_MAGIC = b"SQLite format 3\x00"
"""The first 16 bytes of every SQLite database (SQLite file format, section 1.3.1)."""

_SHOWN_CHARS_MAX = 200

_EXAMPLE = "Give it as sqlite:///FILE, such as sqlite:///leads.sqlite."


def normal_url(url: str) -> str:
    """Return the one spelling of a sheet's URL: an absolute path, symbolic links followed.

    A relative path is one of the present directory, so whoever hands the URL to another process
    hands on this spelling. Raises: SheetUnusable where the URL is no SQLite file's.
    """
    return f"sqlite:///{sheet_file(url)}"


def sheet_file(url: str) -> Path:
    """Return the absolute path of the sheet's file. Raises: SheetUnusable."""
    parts = _parts(url)
    shown = _shown(parts.render_as_string(hide_password=True))
    if parts.get_backend_name() != "sqlite":
        raise SheetUnusable(
            f'Sheet "{shown}": this version writes SQLite only, not {_shown(parts.get_backend_name())}. '
            f"{_EXAMPLE}"
        )
    if parts.drivername not in ("sqlite", "sqlite+pysqlite") or parts.host or parts.query:
        raise SheetUnusable(f'Sheet "{shown}": only a file can be given. {_EXAMPLE}')
    if not parts.database or parts.database == ":memory:" or parts.database.startswith("file:"):
        raise SheetUnusable(f'Sheet "{shown}" names no file. {_EXAMPLE}')
    try:
        return Path(parts.database).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise SheetUnusable(f'Sheet "{shown}": no usable path ({_reason(error)}).') from error


def _parts(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SheetUnusable(f'Sheet "{_shown(url)}" is no URL. {_EXAMPLE}') from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)[:100]


def _shown(url: str) -> str:
    """Return a URL as a sentence may hold it: printable, not too long, without a password."""
    plain = "".join(char if char.isprintable() else "�" for char in url[: 2 * _SHOWN_CHARS_MAX])
    plain = re.sub(r"(//[^:/]*):[^/]*@", r"\1:***@", plain)
    return plain if len(plain) <= _SHOWN_CHARS_MAX else plain[: _SHOWN_CHARS_MAX - 1] + "…"


def check_readable(path: Path) -> None:
    """Raise SheetUnusable where `path` is no SQLite database that can be read."""
    if not path.exists():
        raise SheetUnusable(f"No sheet at {path}. A run makes it; see --sheet and ROWMILL_SHEET.")
    _check_file(path)


def check_writable(path: Path) -> None:
    """Make the file with mode 0600 where it is missing. Raises: SheetUnusable."""
    if not path.parent.is_dir():
        raise SheetUnusable(f"Sheet {path}: the directory {path.parent} does not exist. Make it.")
    if not path.exists():
        try:
            # SQLite would use the umask; it gives its -wal and -shm files the mode of this one.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise SheetUnusable(f"Sheet {path} can't be made: {error.strerror}.") from error
    _check_file(path)
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            raise SheetUnusable(f"Sheet {path} can't be written: no permission to write {place}.")


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise SheetUnusable(f"Sheet {path} is no file.")
    try:
        with path.open("rb") as file:
            head = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise SheetUnusable(f"Sheet {path} can't be read: {error.strerror}.") from error
    if head and head != SQLITE_MAGIC:
        raise SheetUnusable(
            f"Sheet {path} is no SQLite database (it begins with {head!r}). Name another file."
        )
