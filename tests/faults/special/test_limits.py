"""A worker that its machine keeps short: what it says, and that another start goes on."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.faults.asking import completed, dispatch, numbered, share, write_rows
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

ROWS = 300
FEW = 64


def test_too_few_descriptors_end_in_a_sentence_not_in_a_traceback(
    mill: Mill, ledger: Ledger, tmp_path: Path
) -> None:
    """F9: 64 descriptors, a tenth of what stores and connections need."""
    ledger.hold()
    run = mill.start_run(write_rows(tmp_path / "in.csv", numbered(ROWS)), "few")
    worker = dispatch(mill, 0)
    resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    code = worker.wait(within_s=120)
    said = worker.log()
    assert code == 3, said
    assert f"may open {FEW} files" in said
    assert "ulimit -n" in said, "what to do"
    assert "Traceback" not in said
    share(dispatch(mill, 0))
    ledger.release()
    completed(run, ROWS)
    assert ledger.repeated() == {}
