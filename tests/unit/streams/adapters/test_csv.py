"""CSV: every cell in and out with the same characters, every fault said before anything is called."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.errors import InputError
from rowmill.streams.adapters import csv as csv_adapter
from rowmill.streams.adapters.csv import CsvInput, read_csv, write_csv

INPUTS = Path(__file__).parents[3] / "inputs"


def written(folder: Path, content: bytes) -> Path:
    path = folder / "leads.csv"
    path.write_bytes(content)
    return path


def refusal(path: Path, encoding: str | None = None) -> str:
    with pytest.raises(InputError) as refused:
        read_csv(path, encoding)
    assert refused.value.exit_code == 2
    return str(refused.value)


def values(table: CsvInput) -> list[list[str]]:
    return [list(row.values.values()) for row in table.rows()]


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    marked, plain = read_csv(INPUTS / "O01_bom.csv"), read_csv(INPUTS / "O01_nobom.csv")
    assert marked.header == plain.header == ["email", "name"]
    assert list(marked.rows()) == list(plain.rows())


def test_bytes_of_another_encoding_are_refused_with_their_offset() -> None:
    said = refusal(INPUTS / "O01_cp1252.csv")
    assert "O01_cp1252.csv byte 18 (0xE9) is not UTF-8. Try --encoding cp1252." in said
    assert said.endswith("Nothing was called.")


def test_the_encoding_told_is_the_encoding_used() -> None:
    table = read_csv(INPUTS / "O01_cp1252.csv", "cp1252")
    assert values(table) == [["Renée Example", "Málaga", "2019\N{EN DASH}2021"]]


def test_the_offset_of_a_wrong_byte_counts_the_mark_and_all_blocks(tmp_path: Path) -> None:
    head = b"\xef\xbb\xbfa,b\n"
    body = "é,x\n".encode() * 400_000  # more than one block, cut within a character
    path = written(tmp_path, head + body + b"\xff,y\n")
    assert f"byte {len(head) + len(body)} (0xFF)" in refusal(path)
    assert "byte 6 (0xFF)" in refusal(written(tmp_path, b"\xef\xbb\xbfa,b\xff\n"))
    assert "byte 4 (0xC3)" in refusal(written(tmp_path, b"a,b\n\xc3"))


def test_an_encoding_that_does_not_exist_is_a_sentence() -> None:
    assert "--encoding klingon: no such encoding" in refusal(INPUTS / "O01_bom.csv", "klingon")


def test_utf_16_is_read_where_it_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,é\n".encode("utf-16"))
    assert "Try --encoding utf-16." in refusal(path)
    assert values(read_csv(path, "utf-16")) == [["1", "é"]]


def test_line_ends_inside_cells_stay_as_they_are() -> None:
    expected = json.loads((INPUTS / "O02_expect.json").read_text())
    table = read_csv(INPUTS / "O02_newlines.csv")
    assert [table.header, *values(table)] == expected


def test_equal_headers_lose_no_value_and_are_said() -> None:
    table = read_csv(INPUTS / "O03_duplicate_headers.csv")
    assert table.original_header == ["email", "phone", "email", "phone", "email"]
    first = next(table.rows()).values
    assert first["email"] == "work1@acme.test"
    assert first["email_3"] == "old1@mail.test"
    renamed = [warning.rpartition(" ")[2] for warning in table.warnings]
    assert renamed == ['"email_2".', '"phone_2".', '"email_3".']


def test_ragged_rows_fail_alone_or_are_filled_and_counted() -> None:
    table = read_csv(INPUTS / "O04_blank_and_ragged.csv")
    rows = list(table.rows())
    assert table.row_count == len(rows) == 5
    assert [row.values["company"] for row in rows] == ["Acme", "Birch", "Cedar", "", "Dogwood"]
    assert rows[1].values == {
        "company": "Birch",
        "column_2": "only-two",
        "domain": "",
        "column_4": "",
    }
    assert rows[2].refused == "line 4: 5 cells, 4 headers"
    assert rows[2].surplus == ("SURPLUS",)
    assert [row.refused for row in rows].count(None) == 4
    assert any("1 row with fewer cells" in line and "line 3" in line for line in table.warnings)
    assert any("1 row with more cells" in line and "line 4" in line for line in table.warnings)


def test_text_that_looks_like_numbers_stays_text() -> None:
    expected = json.loads((INPUTS / "O05_expect.json").read_text())
    assert next(read_csv(INPUTS / "O05_lookalikes.csv").rows()).values == expected


def test_a_header_that_melted_into_one_column_is_refused(tmp_path: Path) -> None:
    assert "one column that holds semicolons" in refusal(INPUTS / "O06_semicolon_sep.csv")
    assert "one column that holds tabs" in refusal(written(tmp_path, b"a\tb\n1\t2\n"))
    assert values(read_csv(written(tmp_path, b"only\na;b\n"))) == [["a;b"]]


def test_every_cell_is_found_under_its_exact_header() -> None:
    expected = json.loads((INPUTS / "O07_expect.json").read_text())
    assert next(read_csv(INPUTS / "O07_header_names.csv").rows()).values == expected


def test_cells_of_a_megabyte_are_read_and_an_open_quote_is_not(tmp_path: Path) -> None:
    sizes = [5, 200_000, 1_100_000]
    content = "n,text\n" + "".join(f"{size},{'x' * size}\n" for size in sizes)
    table = read_csv(written(tmp_path, content.encode()))
    assert [len(row.values["text"]) for row in table.rows()] == sizes
    endless = b'a,b\n1,"never closed\n' + b"x\n" * (csv_adapter.CELL_CHARS_MAX // 2)
    assert "is a quote left open?" in refusal(written(tmp_path, endless))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "leads.csv is empty. Nothing was called."),
        (b"\xef\xbb\xbf\n\n", "leads.csv is empty. Nothing was called."),
        (b"a,b\n\n\n", "leads.csv has a header and no rows. Nothing was called."),
        (b'a,b\n1,2\n3,"open\n', "line 3: a quote is opened here and never closed."),
        (b'a,b\n1,"x"y\n', "line 2: bad quoting"),
    ],
)
def test_a_fault_of_the_file_is_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in refusal(written(tmp_path, content))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nope.csv").endswith("nope.csv: no such file. Nothing was called.")
    assert "is a folder" in refusal(tmp_path)


def test_a_file_that_changed_after_its_check_is_not_read_on(tmp_path: Path) -> None:
    path = written(tmp_path, b"a,b\n1,2\n")
    table = read_csv(path)
    path.write_bytes(b"a,b\n1,2\n3,4\n")
    with pytest.raises(InputError, match="has changed"):
        list(table.rows())


def test_nul_characters_are_removed_and_counted(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, b'a,b\n1\0,"\0x"\n2,\\u0000\n'))
    assert values(table) == [["1", "x"], ["2", "\\u0000"]]
    assert table.warnings == ["2 NUL characters removed from cells."]


def test_rows_are_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_bytes(b"a,b\n" + b"x" * 100 + b"," + b"y" * 100 + b"\n" * 1)
    with path.open("ab") as stream:
        for _ in range(300):
            stream.write((b"x" * 100 + b"," + b"y" * 100 + b"\n") * 100)
    tracemalloc.start()
    table = read_csv(path)
    assert sum(1 for _ in table.rows()) == table.row_count == 30_001
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One block and its text, of a file of 6 MB.
    assert peak_bytes < 4 << 20


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = [["1", "a,b"], ["", 'say "x"'], ["\r", "\n"], ["\r\n", "é 📧"], [" padded ", "00501"]]
    assert write_csv(tmp_path / "out.csv", ["k", "v"], rows) == 5
    assert values(read_csv(tmp_path / "out.csv")) == rows
    assert list(tmp_path.iterdir()) == [tmp_path / "out.csv"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("before")

    def breaking() -> Iterator[list[str]]:
        yield ["1"]
        raise RuntimeError("the sheet went away")

    with pytest.raises(RuntimeError):
        write_csv(out, ["k"], breaking())
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be written: No such file"):
        write_csv(tmp_path / "none" / "out.csv", ["k"], [])
