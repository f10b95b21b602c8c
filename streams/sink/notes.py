"""What the sink tells the history of its chunks (docs/history.md)."""

from __future__ import annotations

from rowmill.streams.core.chunks import Chunk
from rowmill.streams.core.row_writes import RowWrite
from rowmill.streams.ports import Flushed, Note, silent


class ChunkNotes:
    """Notes about the chunks of one sheet, numbered from 1 in this process."""

    def __init__(self, sheet: str, note: Note) -> None:
        self._sheet = sheet
        self._note = note
        self._chunk = 0

    def writing(self, chunk: Chunk[RowWrite]) -> None:
        """A chunk's transaction is about to begin."""
        self._chunk += 1
        if self._note is not silent:
            spans = [[span.partition, span.start or 0, span.end] for span in chunk.spans]
            self._note("writing", sheet=self._sheet, chunk=self._chunk, spans=spans)

    def wrote(self, chunk: Chunk[RowWrite], flushed: Flushed) -> None:
        """It is committed."""
        if self._note is silent:
            return
        spans, rows = [], []
        for span in chunk.spans:
            next_ = flushed.next_offsets.get(span.partition, span.end)
            spans.append([span.partition, span.start or 0, next_])
            for offset, row in zip(span.offsets, span.rows, strict=True):
                rows.append([row.run, row.row, row.epoch, span.partition, offset])
        self._note(
            "wrote",
            sheet=self._sheet,
            chunk=self._chunk,
            spans=spans,
            rows=rows,
            written=flushed.written,
            ignored=flushed.ignored,
            had=flushed.had,
        )
