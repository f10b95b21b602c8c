"""A run is resumed with the rows that it began with, or refused by the place that differs."""

from __future__ import annotations

import pytest

from rowmill.client.feed import InputDiffers, SourceRow
from rowmill.client.source import Source, pages_of
from rowmill.client.work import checked_run_id, new_run_id
from rowmill.errors import UsageError


def source(rows: int, changed: int | None = None) -> Source:
    def read() -> list[SourceRow]:
        return [
            SourceRow(f"id{index}", {"n": "other" if index == changed else str(index)})
            for index in range(rows)
        ]

    return Source.read(read)


@pytest.mark.parametrize(("rows", "pages"), [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (5_000, 5)])
def test_an_input_has_a_digest_for_every_thousand_rows(rows: int, pages: int) -> None:
    found = source(rows)
    assert (found.total, len(found.digests)) == (rows, pages)


def test_the_same_rows_are_taken_sealed_or_not() -> None:
    began = source(4_500)
    source(4_500).compare("r", began.digests, began.total)
    source(4_500).compare("r", began.digests, None)


def test_a_changed_row_is_refused_by_its_page() -> None:
    began = source(4_500)
    with pytest.raises(InputDiffers, match=r"rows 3,001-4,000 differ.*Nothing was called"):
        source(4_500, changed=3_500).compare("r", began.digests, began.total)
    with pytest.raises(InputDiffers, match=r"rows 4,001-4,500 differ"):
        source(4_500, changed=4_400).compare("r", began.digests, None)


def test_rows_added_or_missing_are_named() -> None:
    five = source(5)
    with pytest.raises(InputDiffers, match=r"rows 6-503 are new"):
        source(503).compare("r", five.digests, five.total)
    all_rows = source(503)
    with pytest.raises(InputDiffers, match=r"rows 6-503 are missing"):
        source(5).compare("r", all_rows.digests, all_rows.total)
    longer = source(2_500)
    with pytest.raises(InputDiffers, match=r"rows 2,001-3,000 are new"):
        source(2_500).compare("r", longer.digests[:2], None)


def test_a_changed_page_is_named_even_where_rows_were_added() -> None:
    began = source(3_000)
    with pytest.raises(InputDiffers, match=r"rows 1,001-2,000 differ"):
        source(3_500, changed=1_500).compare("r", began.digests, began.total)


def test_values_are_compared_as_they_are() -> None:
    as_text = Source.read(lambda: [SourceRow("a", {"n": "1"})])
    as_number = Source.read(lambda: [SourceRow("a", {"n": 1})])
    refused = Source.read(lambda: [SourceRow("a", {"n": "1"}, "too long")])
    assert len({as_text.digests, as_number.digests, refused.digests}) == 3
    assert (as_text.refused, refused.refused) == (0, 1)


def test_pages_hold_a_thousand_rows() -> None:
    rows = [SourceRow(str(index), {}) for index in range(2_001)]
    assert [len(page) for page in pages_of(rows)] == [1_000, 1_000, 1]


@pytest.mark.parametrize("run", ["", "a/b", "../x", ".x", "-x", "a b", "é", "a" * 65, "a\n"])
def test_what_could_leave_its_folder_or_key_is_no_run_id(run: str) -> None:
    with pytest.raises(UsageError, match="can't be a run id"):
        checked_run_id(run)


def test_run_ids_are_short_and_differ() -> None:
    made = {new_run_id() for _ in range(1_000)}
    assert len(made) > 990
    assert all(len(run) == 8 and checked_run_id(run) == run for run in made)
    assert checked_run_id("2026-12_leads.v2") == "2026-12_leads.v2"
