"""Runs from code: connect, start a play over rows, wait for the report.

The command line is a thin layer over this; `run.done()` returns the object that `--json` prints.
"""

from __future__ import annotations

from rowmill.client.mill import Mill, connect
from rowmill.client.report import RunReport
from rowmill.client.run import Run

__all__ = ["Mill", "Run", "RunReport", "connect"]
