"""A sink in a process of its own, with transactions that stay open long enough to be killed in.

Run as a program: `sink_process.py STORE READY_FILE`; settings come from the environment.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from rowmill.ops import logs
from rowmill.settings import Settings
from rowmill.streams.adapters.sheet.rows import RowsWriter
from rowmill.streams.sink.app import main


def _stay_open(wait_s: float) -> None:
    """Wait in each transaction after its rows were written and before it is committed."""
    add_counts = RowsWriter.add_counts

    def slow(self: RowsWriter) -> None:
        time.sleep(wait_s)
        add_counts(self)

    RowsWriter.add_counts = slow  # type: ignore[method-assign]


if __name__ == "__main__":
    os.umask(0o077)
    store, ready = Path(sys.argv[1]), Path(sys.argv[2])
    settings = Settings()
    logs.configure(settings)
    if wait_s := float(os.environ.get("TEST_TRANSACTION_S", "0")):
        _stay_open(wait_s)
    sys.exit(main(settings, store, lambda: ready.touch(), ()))
