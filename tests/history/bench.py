"""How long reading and checking takes: `python -m tests.history.bench [EVENTS]`, 1,000,000 unless said."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import msgspec

from tests.history.checker import check
from tests.history.events import Event, History
from tests.history.generator import generate

EVENTS_PER_ROW = 42


def write(events: list[Event], folder: Path) -> None:
    """Write a history as its processes would have, a file each."""
    encode = msgspec.json.Encoder().encode
    lines: dict[str, list[bytes]] = defaultdict(list)
    for event in events:
        plain = {name: value for name, value in event.items() if name != "by"}
        lines[event["by"]].append(encode(plain) + b"\n")
    for by, some in lines.items():
        (folder / f"{by}.jsonl").write_bytes(b"".join(some))


def main() -> int:
    """Print what was measured; 1 where a valid history was found to be none."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    generated = generate(-(-wanted // EVENTS_PER_ROW))
    with tempfile.TemporaryDirectory() as name:
        write(generated.events, Path(name))
        generated.events.clear()
        began_s = time.perf_counter()
        history = History.read(Path(name))
        read_s = time.perf_counter()
    report = check(history, generated.finals, limits=generated.limits)
    checked_s = time.perf_counter()
    print(report)
    print(
        f"{len(history.events):,} events: read in {read_s - began_s:.1f} s, "
        f"checked in {checked_s - read_s:.1f} s"
    )
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
