"""File descriptors: as many as the machine gives, and a sentence where those are too few (F9)."""

from __future__ import annotations

import contextlib
import resource

from rowmill.errors import InfrastructureError

DESCRIPTORS_MIN = 512
"""Some 60 for a role itself, up to 256 for the files of its stores, and one for each call in flight:
with fewer, calls fail as if their provider could not be reached."""

DESCRIPTORS_MAX = 65_536
"""More than any worker opens; some systems name a limit in the thousands of millions."""


class TooFewDescriptors(InfrastructureError):
    """The process may not open enough files and connections. Nothing was read."""

    def __init__(self, allowed: int) -> None:
        super().__init__(
            f"Too many open files: this worker may open {allowed:,} files and connections and needs "
            f"{DESCRIPTORS_MIN:,}. Raise the limit (ulimit -n {4 * DESCRIPTORS_MIN}, LimitNOFILE= of "
            "its service, or its container's ulimits) and start it again."
        )


def ensure() -> None:
    """Raise the soft limit to what the hard one allows. Raises: TooFewDescriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS names a hard limit that it refuses
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS_MIN:
        raise TooFewDescriptors(soft)
