"""What a row must not carry on its way out: a secret (R10), or more bytes than a record holds (R9).

A row that does fails alone, by its path, and what is wrong with it is left out: the value of a
secret, or the values of a row that is too large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rowmill.streams.ports import Secrets
from rowmill.streams.rows.runner import RowEnding
from rowmill.topics.contracts import Cell

_encode = msgspec.json.encode


def too_large(where: str, ending: RowEnding, size_bytes: int, limit_bytes: int) -> RowEnding:
    """Return the ending of a row whose record is larger than `limit_bytes`."""
    error = (
        f"{where}: {size_bytes} bytes with its outputs; the limit is {limit_bytes} "
        "(ROWMILL_ROW_BYTES_MAX)"
    )
    return RowEnding("failed", error=error, calls=ending.calls)


def without_secret(where: str, ending: RowEnding, name: str, secrets: Secrets) -> RowEnding:
    """Return the ending of a row whose record carries the value of secret `name`.

    Cells that carry none are kept, as of any failed row (D3).
    """
    cells = {column: _clean(column, cell, secrets) for column, cell in ending.cells.items()}
    tainted = [column for column, cell in cells.items() if cell is not ending.cells[column]]
    what = f'column "{tainted[0]}"' if tainted else "the row"
    return RowEnding(
        "failed",
        cells,
        error=f"{where}: {what} carries the secret {name}, which is not kept",
        failed_column=tainted[0] if tainted else ending.failed_column,
        calls=ending.calls,
    )


def clean_values(values: dict[str, Any], secrets: Secrets) -> dict[str, Any]:
    """Return a row's input values; none of them where one carries a secret."""
    return {} if secrets.found_in(_encode(values)) is not None else values


def _clean(column: str, cell: Cell, secrets: Secrets) -> Cell:
    plain: Mapping[str, Any] = cell.__dict__
    name = secrets.found_in(_encode({column: plain}))
    if name is None:
        return cell
    error = f"carries the secret {name}, which is not kept"
    return Cell.model_construct(status="failed", error=error, provider=cell.provider)
