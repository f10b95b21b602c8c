"""Names: nothing is lost, nothing collides, nothing has to be quoted."""

from __future__ import annotations

import csv
import sqlite3

import pytest

from rowmill.streams.core.names import (
    INTERNAL_PREFIX,
    SHEET_NAME_BYTES_MAX,
    field_names,
    sheet_columns,
    sheet_name,
)

# Case O07, the header line as it stands in the file.
O07 = (
    "id,status,select,Net.Revenue,og (product.metafields.custom.og),tags[0],Straße,📧 email,"
    "_metadata,domain,"
    "this_column_name_repeats_the_same_words_until_it_is_far_too_long_for_sql_name,"
    "this_column_name_repeats_the_same_words_until_it_is_far_too_long_for_sql_titl"
)


@pytest.mark.behaviour("D7")
def test_headers_that_mean_something_to_sql_get_plain_names() -> None:
    headers = next(csv.reader([O07]))
    columns = sheet_columns(headers, ["domain"])
    assert list(columns.inputs) == headers
    assert columns.inputs["id"] == "id"
    assert columns.inputs["select"] == "select_"
    assert columns.inputs["Net.Revenue"] == "Net_Revenue"
    assert columns.inputs["tags[0]"] == "tags_0"
    assert columns.inputs["📧 email"] == "email"
    assert columns.inputs["_metadata"] == "_metadata"
    long_a, long_b = list(columns.inputs.values())[-2:]
    assert long_a != long_b
    assert long_b.endswith("_2")
    assert columns.outputs == {"domain": "domain_2"}


@pytest.mark.behaviour("D7")
def test_a_header_that_stands_three_times_keeps_three_fields() -> None:
    assert field_names(["email", "phone", "email", "phone", "email"]) == (
        "email",
        "phone",
        "email_2",
        "phone_2",
        "email_3",
    )


def test_a_made_up_name_never_takes_one_that_exists() -> None:
    assert field_names(["a", "a", "a_2", "", "column_4"]) == (
        "a",
        "a_3",
        "a_2",
        "column_4_2",
        "column_4",
    )


@pytest.mark.behaviour("D7")
def test_an_output_named_like_an_input_is_numbered_in_sheet_and_export() -> None:
    columns = sheet_columns(["name", "Domain"], ["name", "domain", "name_2"])
    assert columns.inputs == {"name": "name", "Domain": "Domain"}
    assert columns.outputs == {"name": "name_3", "domain": "domain_2", "name_2": "name_2"}
    assert columns.exports == {"name": "name_3", "domain": "domain", "name_2": "name_2"}


@pytest.mark.behaviour("D7")
def test_a_replacing_output_is_exported_in_place_and_kept_apart_in_the_sheet() -> None:
    columns = sheet_columns(["name"], ["name"], replace=["name"])
    assert columns.exports == {"name": "name"}
    assert columns.outputs == {"name": "name_2"}


@pytest.mark.behaviour("D7")
def test_runtime_only_outputs_have_no_column() -> None:
    assert list(sheet_columns(["a"], ["_draft", "_metadata"]).outputs) == ["_metadata"]


def test_no_column_looks_like_one_of_the_sheets_own() -> None:
    for header in ("_rowmill_row", "_ROWMILL_status", " _rowmill_ x", "_rowmill"):
        assert not sheet_name(header).casefold().startswith(INTERNAL_PREFIX)


def test_names_are_cut_between_characters() -> None:
    name = sheet_name("ß" * 40)
    assert name == "ß" * 31
    assert len(name.encode()) <= SHEET_NAME_BYTES_MAX


def test_mappings_go_both_ways() -> None:
    columns = sheet_columns(["a.b", "c"], ["d"])
    assert columns.fields == {"a_b": "a.b", "c": "c"}
    assert columns.output_of == {"d": "d"}
    assert columns.sheet == ("a_b", "c", "d")


def test_every_sqlite_keyword_is_usable_without_quotes() -> None:
    words = """abort action add after all alter always analyze and as asc attach autoincrement before
        begin between by cascade case cast check collate column commit conflict constraint create
        cross current current_date current_time current_timestamp database default deferrable
        deferred delete desc detach distinct do drop each else end escape except exclude exclusive
        exists explain fail filter first following for foreign from full generated glob group groups
        having if ignore immediate in index indexed initially inner insert instead intersect into is
        isnull join key last left like limit match materialized natural no not nothing notnull null
        nulls of offset on or order others outer over partition plan pragma preceding primary query
        raise range recursive references regexp reindex release rename replace restrict returning
        right rollback row rows savepoint select set table temp temporary then ties to transaction
        trigger unbounded union unique update using vacuum values view virtual when where window with
        without rowid oid _rowid_""".split()  # noqa: SIM905 - a word list, not a page of quotes
    columns = sheet_columns(words, [])
    with sqlite3.connect(":memory:") as database:
        database.execute(f"create table t ({', '.join(columns.sheet)})")
        database.execute(f"select {', '.join(columns.sheet)} from t")
