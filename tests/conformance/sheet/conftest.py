"""One suite for every sheet driver: a driver is how to open a writer and a reader of one sheet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rowmill.streams.adapters.sheet.reading import SheetReader
from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.streams.core.chunks import Chunk, Span
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.ports import Flushed, Sheet, Source
from tests.conformance.sheet.writes import SOURCE


@dataclass
class Driver:
    """One sheet under test. `put` writes rows behind whatever the sheet holds of partition 0."""

    url: str
    writers: list[Sheet] = field(default_factory=list)

    def open(self) -> Sheet:
        """Open the writer; the one before must have been closed."""
        self.writers.append(SqliteSheet(self.url))
        return self.writers[-1]

    def reader(self) -> SheetReader:
        """Open a reader, while the writer is open."""
        return SheetReader(self.url)

    def put(self, sheet: Sheet, *rows: RowWrite, source: Source = SOURCE) -> Flushed:
        """Flush rows as one chunk of one partition."""
        start = sheet.next_offsets(source).get(0)
        first = start or 0
        offsets = tuple(range(first, first + len(rows)))
        return sheet.flush(source, Chunk((Span(0, start, first + len(rows), offsets, rows),)))


@pytest.fixture(params=["sqlite"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    """Each driver in turn, with an empty sheet."""
    made = Driver(f"sqlite:///{tmp_path / 'sheet.sqlite'}")
    yield made
    for writer in made.writers:
        writer.close()


@pytest.fixture
def sheet(driver: Driver) -> Sheet:
    """The driver's open writer."""
    return driver.open()


@pytest.fixture
def inputs() -> Path:
    """Where the inputs of the cases O07-O10 are."""
    return Path(__file__).parent / "inputs"
