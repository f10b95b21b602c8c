"""Where a run's rows come from, and the pass that checks them before anything is claimed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from rowmill.client.feed import PAGE_ROWS, InputDiffers, SourceRow, page_digest

Rows = Callable[[], Iterable[SourceRow]]
"""Begins the input anew at each call; always the same rows in the same order."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows that can be read more than once, already read once: their number and page digests."""

    rows: Rows
    total: int
    digests: tuple[str, ...]
    refused: int

    @classmethod
    def read(cls, rows: Rows) -> Source:
        """Read the input to its end, page by page. Raises: what reading it raises (InputError)."""
        total = refused = 0
        digests = []
        for page in pages_of(rows()):
            total += len(page)
            refused += sum(row.refused is not None for row in page)
            digests.append(page_digest(page))
        return cls(rows, total, tuple(digests), refused)

    async def pages(self) -> AsyncIterator[Sequence[SourceRow]]:
        """Return the input once more, page by page."""
        for page in pages_of(self.rows()):
            yield page

    def compare(self, run: str, digests: Sequence[str], total: int | None) -> None:
        """Compare with what the run began with: `digests` of its pages, `total` once sealed.

        Raises: InputDiffers, naming the first page that differs, or the rows too many or too few.
        """
        fewer = min(self.total, self.total if total is None else total)
        for number, (known, ours) in enumerate(zip(digests, self.digests, strict=False)):
            first, last = number * PAGE_ROWS + 1, (number + 1) * PAGE_ROWS
            if last > fewer and total not in (None, self.total):
                break  # the page where the shorter input ends: the totals say what is wrong
            if known != ours:
                raise InputDiffers(run, first, min(last, self.total))
        if total is not None and total != self.total:
            why = "are new" if self.total > total else "are missing"
            raise InputDiffers(run, fewer + 1, max(total, self.total), why)
        if len(digests) != len(self.digests):
            pages = sorted((len(digests), len(self.digests)))
            why = "are new" if len(self.digests) > len(digests) else "are missing"
            raise InputDiffers(run, pages[0] * PAGE_ROWS + 1, pages[1] * PAGE_ROWS, why)


def pages_of(rows: Iterable[SourceRow]) -> Iterable[list[SourceRow]]:
    """Cut rows into pages of PAGE_ROWS."""
    iterator = iter(rows)
    while page := list(islice(iterator, PAGE_ROWS)):
        yield page
