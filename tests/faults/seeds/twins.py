"""Calm twins: the sheet of each shape without faults, run once and remembered for all its seeds."""

from __future__ import annotations

import pickle
from pathlib import Path

from rowmill.ops.supervisor.locks import FileLock
from tests.faults.seeds.seed import calm_twin
from tests.faults.seeds.shape import Shape
from tests.history.finals import SheetRow

WITHIN_S = 180


def twin_of(shape: Shape, folder: Path) -> list[SheetRow]:
    """Return a shape's calm sheet, from `folder` where a process has run it before."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"twin-{shape.number}.pickle"
    with FileLock(folder / f"twin-{shape.number}.lock") as lock:
        assert lock.acquire(within_s=WITHIN_S), "another process runs this twin for too long"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(calm_twin(shape, folder / f"twin-{shape.number}")))
        found: list[SheetRow] = pickle.loads(kept.read_bytes())
    return found
