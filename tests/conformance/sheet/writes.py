"""Rows as the sink hands them to a sheet."""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.streams.core.identity import digest
from rowmill.streams.core.row_writes import CellWrite, RowWrite
from rowmill.streams.ports import Source

SOURCE = Source("sink@cluster", "rows.completed")


def raw(value: Any) -> msgspec.Raw:
    """Return a value's JSON text."""
    return msgspec.Raw(msgspec.json.encode(value))


def cell(value: Any, **fields: Any) -> CellWrite:
    """Return a finished cell."""
    return CellWrite(**{"status": "completed", "value": raw(value), **fields})


def row(
    key: str,
    values: dict[str, Any] | None = None,
    cells: dict[str, Any] | None = None,
    **fields: Any,
) -> RowWrite:
    """Return a finished row of run "run-1"; `fields` replace what it says of itself."""
    plain: dict[str, Any] = {
        "run": "run-1",
        "run_number": 1,
        "life": 1,
        "epoch": 1,
        "dataset": "leads",
        "row": digest(key),
        "index": 0,
        "status": "completed",
        "values": {name: raw(value) for name, value in (values or {"key": key}).items()},
        "cells": {
            name: value if isinstance(value, CellWrite) else cell(value)
            for name, value in (cells or {}).items()
        },
    }
    return RowWrite(**{**plain, **fields})


def patch(key: str, cells: dict[str, Any], **fields: Any) -> RowWrite:
    """Return cells of a row that is still open."""
    return row(key, cells=cells, **{"kind": "patch", "status": None, **fields})
