"""Properties of the name mapping over any text."""

from __future__ import annotations

import sqlite3

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rowmill.streams.core.names import (
    INTERNAL_PREFIX,
    SHEET_NAME_BYTES_MAX,
    field_names,
    sheet_columns,
    sheet_name,
)

near = st.text(alphabet="aA_2. é\u0301ßẞ\u200d[]'\";\x00", max_size=6)
headers = st.lists(near | st.text(max_size=90) | st.sampled_from(["order", "ORDER_", "rowid"]))
outputs = st.lists(near.filter(bool), unique=True, max_size=6)


@settings(deadline=None)  # a noisy machine
@given(headers)
def test_fields_are_distinct_and_stay_what_they_are(names: list[str]) -> None:
    fields = field_names(names)
    assert len(set(fields)) == len(names)
    assert field_names(fields) == fields
    firsts = {name for name in names if name.strip()}
    assert firsts <= set(fields)


@settings(deadline=None)  # a noisy machine
@given(headers, outputs)
@example(["a_2", "a", "A"], ["a"])
@example(["ß" * 40, "ß" * 41], [])
def test_sheet_names_are_distinct_legal_and_need_no_quotes(
    names: list[str], out: list[str]
) -> None:
    columns = sheet_columns(names, out)
    assert len({name.casefold() for name in columns.sheet}) == len(columns.sheet)
    for name in columns.sheet:
        assert 1 <= len(name.encode()) <= SHEET_NAME_BYTES_MAX
        assert not name.casefold().startswith(INTERNAL_PREFIX)
    with sqlite3.connect(":memory:") as database:
        database.execute(f"create table t ({', '.join(columns.sheet) or '_rowmill_row'})")


@settings(deadline=None)  # a noisy machine
@given(headers, outputs)
def test_the_mapping_is_idempotent_and_outputs_never_move_inputs(
    names: list[str], out: list[str]
) -> None:
    columns = sheet_columns(names, out)
    again = list(columns.inputs.values())
    assert sheet_columns(again, []).inputs == {name: name for name in again}
    assert sheet_columns(names, []).inputs == columns.inputs
    assert all(columns.fields[sheet] == field for field, sheet in columns.inputs.items())


@settings(deadline=None)  # a noisy machine
@given(headers, outputs)
def test_exported_headers_are_distinct(names: list[str], out: list[str]) -> None:
    columns = sheet_columns(names, out)
    exported = [*columns.inputs, *columns.exports.values()]
    assert len(set(exported)) == len(exported)


@settings(deadline=None)  # a noisy machine
@given(st.text())
def test_a_sheet_name_is_its_own(name: str) -> None:
    assert sheet_name(sheet_name(name)) == sheet_name(name)
