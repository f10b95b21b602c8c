"""CSV over any cells: out and in again changes nothing."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.errors import InputError
from rowmill.streams.adapters.csv import read_csv, write_csv

# NUL is removed by rule; a lone surrogate is no character of UTF-8.
cells = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
tricky = st.text(alphabet=',"\r\n\t ;a\x0b\x85\u2028\ufeff', max_size=8)
rows = st.lists(st.lists(cells | tricky, min_size=2, max_size=2), min_size=1, max_size=8)


@settings(deadline=None)  # disk and a noisy machine
@given(rows)
def test_cells_survive_a_round_trip(table: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        write_csv(path, ["a", "b"], table)
        again = [list(row.values.values()) for row in read_csv(path).rows()]
    assert again == table


@settings(deadline=None)  # disk and a noisy machine
@given(st.binary(max_size=200) | tricky.map(str.encode))
def test_any_bytes_are_read_or_refused_in_words(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            table = read_csv(path)
            assert sum(1 for _ in table.rows()) == table.row_count
