"""Every error a user can meet. Its class says who can act; the class carries the exit code.

A message says what, where, what to do and, where it matters, what it cost.
"""

from __future__ import annotations


class RowmillError(Exception):
    """Base of all errors that Rowmill raises on purpose."""

    exit_code = 1


class UsageError(RowmillError):
    """The command, the play or the input is wrong. Nothing was called."""

    exit_code = 2


class InputError(UsageError):
    """The input file can't be used as it is. Nothing was called."""


class PlayError(UsageError):
    """The play can't be loaded. The message names file and line. Nothing was called."""


class SecretMissing(UsageError):
    """A secret that a provider's auth names is not set or unusable. The message holds no value."""


class InfrastructureError(RowmillError):
    """Broker, disk, sheet or another process is not as needed."""

    exit_code = 3


class Interrupted(RowmillError):
    """The user pressed Ctrl-C; `paused` is written."""

    exit_code = 130
