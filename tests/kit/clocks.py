"""Processes whose wall clock a test moves, by libfaketime; their monotonic clock stays right."""

from __future__ import annotations

from pathlib import Path

import pytest

_PLACES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")


def libfaketime() -> Path | None:
    """Return where libfaketime is, None where it is not installed."""
    found = (path for place in _PLACES for path in Path("/").glob(place.lstrip("/")))
    return next(found, None)


class MovedClock:
    """A wall clock for children. `env` starts one with it; `move` moves it while they run."""

    def __init__(self, file: Path) -> None:
        """`file`: where the present offset stands. Skips where libfaketime is not installed."""
        library = libfaketime()
        if library is None:
            pytest.skip("needs libfaketime (Debian: apt-get install libfaketime)")
        self._file = file
        self.move(0)
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            # Seconds until it is looked at again; each time would slow a JVM down to a standstill.
            "FAKETIME_CACHE_DURATION": "1",
            # Else the loop's own clock jumps too.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def move(self, by_s: float) -> None:
        """Let the clock stand `by_s` seconds from the right time."""
        self._file.write_text(f"{by_s:+g}\n")
