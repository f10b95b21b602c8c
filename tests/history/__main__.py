"""Read a history and say which promises were broken: `python -m tests.history FOLDER`.

Without what a run left behind (topics, sheet, report) only the history itself is checked. Limits
come from `limits.json` in the folder, where there is one: the fields of `Limits`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from tests.history.checker import check
from tests.history.events import History
from tests.history.invariant import Limits

LIMITS = "limits.json"


def save_limits(limits: Limits, folder: Path) -> None:
    """Leave the limits beside a history, for who reads it later."""
    (folder / LIMITS).write_bytes(msgspec.json.encode(limits))


def read_limits(folder: Path) -> Limits:
    """Return the limits beside a history; the defaults without any."""
    path = folder / LIMITS
    return msgspec.json.decode(path.read_bytes(), type=Limits) if path.exists() else Limits()


def main() -> int:
    """Print the report; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the .jsonl files are")
    folder = parser.parse_args().folder
    report = check(History.read(folder), limits=read_limits(folder))
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
