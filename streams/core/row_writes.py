"""What the sheet is asked to write, and which of two writers of one row wins (S3, INV18).

Writers of a row are ordered by the triple (run number, life, epoch). A row is replaced by an equal
or higher triple: an equal one is the same owner's later word, so writing it again changes nothing.
A lower one never wins. A patch only ever adds cells to a row that is open in its own run and life.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

OPEN = "running"
"""Status of a row that has cells but no ending yet."""


class CellWrite(msgspec.Struct, frozen=True):
    """`topics.contracts.Cell` with the value as its JSON text, so that no digit is lost."""

    status: Literal["completed", "failed", "skipped"]
    value: msgspec.Raw = msgspec.Raw(b"null")
    provider: str | None = None
    error: str | None = None
    completed_at_ms: int | None = None
    reused: bool = False


class RowWrite(msgspec.Struct, frozen=True):
    """`topics.contracts.RowCompleted` with values as their JSON text. Fields are the contract's."""

    run: str
    run_number: int
    life: int
    epoch: int
    dataset: str
    row: str
    index: int
    status: Literal["completed", "failed", "skipped"] | None
    kind: Literal["row", "patch"] = "row"
    error: str | None = None
    failed_column: str | None = None
    values: dict[str, msgspec.Raw] = {}
    cells: dict[str, CellWrite] = {}
    schema_version: int = 1

    @property
    def writer(self) -> Writer:
        """Who wrote it, in the order of writers."""
        return Writer(self.run_number, self.life, self.epoch)

    @property
    def is_patch(self) -> bool:
        """True for cells of a row that is still open."""
        return self.kind == "patch"


class Writer(NamedTuple):
    """The triple that orders writers of one row."""

    run_number: int
    life: int
    epoch: int


class Standing(NamedTuple):
    """What the sheet holds of a row: who wrote it, for which run, with which status."""

    writer: Writer
    run: str
    status: str


Verdict = Literal["replace", "add cells", "ignore"]


def judge(standing: Standing | None, write: RowWrite) -> Verdict:
    """Say what becomes of a write. "replace" also puts a row in that the sheet does not hold."""
    if standing is None:
        return "replace"
    if not write.is_patch:
        return "replace" if write.writer >= standing.writer else "ignore"
    same_life = write.writer[:2] == standing.writer[:2]
    if same_life and standing.status == OPEN and write.epoch >= standing.writer.epoch:
        return "add cells"
    return "ignore"


def standing_after(write: RowWrite) -> Standing:
    """Return what the sheet holds once the write was not ignored."""
    return Standing(write.writer, write.run, OPEN if write.is_patch else write.status or OPEN)
