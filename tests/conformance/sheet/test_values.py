"""Every character and digit of a value stands in the sheet as it came (O05, O07-O10)."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowmill.streams.core.row_writes import CellWrite
from rowmill.streams.ports import RowsRefused, Sheet
from tests.conformance.sheet.conftest import Driver
from tests.conformance.sheet.writes import cell, row


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    return header, lines


@pytest.mark.behaviour("D7")
def test_o07_every_header_has_a_column_of_its_own(
    sheet: Sheet, driver: Driver, inputs: Path
) -> None:
    header, lines = read_csv(inputs / "O07_header_names.csv")
    expected = json.loads((inputs / "O07_expect.json").read_text())
    sheet.prepare("leads", header, ["domain"])
    driver.put(
        sheet,
        *(
            row(line[0], dict(zip(header, line, strict=True)), {"domain": "out"}, index=at)
            for at, line in enumerate(lines)
        ),
    )
    with driver.reader() as reader:
        first, second = reader.rows("leads")
        columns = reader.columns("leads")
    assert first.values == expected
    assert second.values["domain"] == "acme.test2"
    assert first.outputs == {"domain": "out"}
    assert columns.exports == {"domain": "domain_2"}
    assert len({name.casefold() for name in columns.sheet}) == len(header) + 1


def test_o08_a_large_cell_is_stored_whole(sheet: Sheet, driver: Driver) -> None:
    driver.put(sheet, row("b", {"text": "x" * 200_000}))
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
    assert found.values["text"] == "x" * 200_000


def test_o09_nul_is_left_out_and_marked_and_its_spelling_is_not(
    sheet: Sheet, driver: Driver, inputs: Path
) -> None:
    header, lines = read_csv(inputs / "O09_nul_rows.csv")
    answers = json.loads((inputs / "O09_answers.json").read_text())["answers"]
    flushed = driver.put(
        sheet,
        *(
            row(
                line[0],
                dict(zip(header, line, strict=True)),
                {"answer": CellWrite("completed", msgspec.Raw(answers[line[0]].encode()))},
                index=at,
            )
            for at, line in enumerate(lines)
        ),
    )
    assert flushed.written == 5
    with driver.reader() as reader:
        rows = list(reader.rows("leads"))
    assert [found.values["text"] for found in rows] == [
        "fine", "name", r"literal \u0000 text", "fine too", "fine as well",
    ]  # fmt: skip
    assert [found.input_cells.get("text") is not None for found in rows] == [
        False, True, False, False, False,
    ]  # fmt: skip
    assert rows[1].input_cells["text"].sanitised
    assert rows[3].outputs["answer"] == '{"v":"ab","price_paid":1}'
    assert rows[3].output_cells["answer"].sanitised
    assert not rows[2].output_cells["answer"].sanitised


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (r'["a\\u0000b"]', r'["a\\u0000b"]'),
        (r'["a\\\u0000b"]', r'["a\\b"]'),
        (r'["\u0000\u0000"]', '[""]'),
        (r'{"k\u0000": 1.10}', '{"k": 1.10}'),
    ],
)
def test_only_a_real_nul_is_left_out_of_json(
    sheet: Sheet, driver: Driver, text: str, kept: str
) -> None:
    driver.put(sheet, row("a", cells={"v": CellWrite("completed", msgspec.Raw(text.encode()))}))
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
    assert found.outputs["v"] == kept
    assert found.output_cells["v"].sanitised == (text != kept)


def test_o10a_120_columns_in_a_chunk_of_1000_rows(
    sheet: Sheet, driver: Driver, inputs: Path
) -> None:
    header, lines = read_csv(inputs / "O10_wide_120x1000.csv")
    rows = [
        row(str(at), dict(zip(header, line, strict=True)), index=at)
        for at, line in enumerate(lines)
    ]
    assert (len(header), len(rows)) == (120, 1_000)
    assert driver.put(sheet, *rows).written == 1_000
    with driver.reader() as reader:
        stored = [list(found.values.values()) for found in reader.rows("leads")]
    assert stored == lines


def test_o10b_one_row_twice_in_a_chunk_ends_with_the_later_word(
    sheet: Sheet, driver: Driver, inputs: Path
) -> None:
    twice = json.loads((inputs / "O10_overlap.json").read_text())["same_flush_twice"]
    driver.put(sheet, *(row(one["key"], cells={"v": one["v"]}) for one in twice))
    with driver.reader() as reader:
        assert [found.outputs["v"] for found in reader.rows("leads")] == ["new"]
        assert reader.counts("leads", "run-1") == {"completed": 1}


@pytest.mark.parametrize(
    "text",
    ["1.10", "-0", "12345678901234567890123456789", "1e5", "true", '{"b":1.00,"a":[]}', '""',
     '"00501"', '"null"', "[]"],
)  # fmt: skip
def test_digits_and_types_are_kept(sheet: Sheet, driver: Driver, text: str) -> None:
    driver.put(sheet, row("a", cells={"v": CellWrite("completed", msgspec.Raw(text.encode()))}))
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
    is_text = text.startswith('"')
    assert found.outputs["v"] == (json.loads(text) if is_text else text)
    assert found.output_cells["v"].json is not is_text


@pytest.mark.parametrize("text", [b'"\xff"', b'"\\ud800"', b"1e999", b'["\xff"]'])
def test_a_value_that_is_no_text_or_number_is_refused(
    sheet: Sheet, driver: Driver, text: bytes
) -> None:
    bad = row("b", cells={"v": CellWrite("completed", msgspec.Raw(text))})
    with pytest.raises(RowsRefused) as refused:
        driver.put(sheet, row("a"), bad)
    assert list(refused.value.reasons) == [(0, 1)]


def test_no_value_is_null(sheet: Sheet, driver: Driver) -> None:
    driver.put(sheet, row("a", {"key": None}, cells={"v": cell(None)}))
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
    assert (found.values, found.outputs) == ({"key": None}, {"v": None})


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    nested=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\x00\\u0"), inner),
        max_leaves=8,
    ),
)
def test_any_text_and_any_json_comes_back_without_its_nuls(
    sheet: Sheet, driver: Driver, text: str, nested: object
) -> None:
    driver.put(sheet, row("a", {"key": text}, cells={"v": [nested]}))
    with driver.reader() as reader:
        (found,) = reader.rows("leads")
    assert found.values["key"] == text.replace("\x00", "")
    stored = found.outputs["v"]
    assert stored is not None
    if "\\u0000" not in json.dumps([nested]):
        assert msgspec.json.decode(stored) == [nested]
    else:
        assert "\x00" not in repr(json.loads(stored))
