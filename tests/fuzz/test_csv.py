"""Any bytes are a table, or an InputError that says what is wrong with the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowmill.errors import InputError
from rowmill.streams.adapters.csv import read_csv
from tests.fuzz.bounds import bounded
from tests.fuzz.examples import fuzzed, several
from tests.fuzz.mutations import changed_bytes

GOOD = [
    b"id,name\n1,a\n2,b\n",
    b'id,"na,me"\r\n1,"a ""b"""\r\n2,"two\r\nlines"\r\n',
    b"\xef\xbb\xbfid,name\n1,\xc3\xa9\n",
    b"id,id,,name\n1,2\n1,2,3,4,5\n\n7,8,9,0\n",
    "id,name\n1,é\n".encode("utf-16"),
    "id,name\n1,é\n".encode("utf-16-le"),
    "id,name\n1,é\n".encode("cp1252"),
    "id,name\n1,\U0001f600\n".encode("utf-32"),
]
ENCODINGS = (
    None, None, None, None, None, "utf-8", "UTF_8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be",
    "utf-32", "cp1252", "latin-1", "ascii", "utf-7", "shift_jis", "gb18030", "iso2022_jp", "hz",
    "idna", "punycode", "base64", "hex", "zlib", "bz2", "rot13", "quopri", "uu", "undefined",
    "unicode_escape", "raw_unicode_escape", "mbcs", "", "no such", "a\0b", "x" * 300, "\ud800",
)  # fmt: skip


def judge(path: Path, content: bytes, encoding: str | None) -> None:
    """The file is read twice over, or refused in a sentence."""
    path.write_bytes(content)
    try:
        table = read_csv(path, encoding)
        rows = list(table.rows())
    except InputError as error:
        check_words(error)
    else:
        assert len(rows) == table.row_count > 0
        assert [row.index for row in rows] == list(range(len(rows)))
        assert all(list(row.values) == table.header for row in rows)
        assert len(set(table.header)) == len(table.header)
        assert not any("\0" in cell for row in rows for cell in row.values.values())


def check_words(error: InputError) -> None:
    words = str(error)
    assert words.endswith("Nothing was called.")
    assert len(words) < 1_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv") / "t.csv"


@fuzzed
@given(several(changed_bytes(GOOD)), st.sampled_from(ENCODINGS))
@example([b"id\n1\n"], "utf-16")  # UnicodeError: UTF-16 stream does not start with BOM
@example([b"id\n1\n"], "base64")  # binascii.Error
@example([b"id\n1\n"], "undefined")  # UnicodeError
@example([b"id\n1\n"], "a\0b")  # ValueError: embedded null character
def test_any_file_is_read_or_refused_in_words(
    path: Path, drawn: Sequence[bytes], encoding: str | None
) -> None:
    def look() -> None:
        for content in drawn:
            judge(path, content, encoding)

    bounded(look)


@pytest.mark.parametrize(
    "content",
    [
        b",".join(b"column_%d" % number for number in range(200_000)) + b"\n1,2\n",
        b"," * 200_000 + b"\n1,2\n",
        b"a," * 200_000 + b"\n1,2\n",
        b"a,b\n" + b"," * 1_000_000,
        b'a,b\n"' + b"x" * 20_000_000,
        b"a,b\n" + b'"' * 1_000_001,
        b"a,b\n1," + b"\0" * 1_000_000,
        b"a,b\n" + b"1\n" * 100_000,
        b"\n" * 1_000_000 + b"a\n1\n",
        b"\r" * 1_000_000,
        b"a,b" + b"1" * 20_000_000,
        "a,b\n1,\U0001f600".encode() * 100_000,
    ],
    ids=[
        "200,000 columns", "without names", "with one name", "a million cells", "an endless quote",
        "quotes only", "NULs", "short rows", "blank lines", "returns only", "one line", "4-byte characters",
    ],
)  # fmt: skip
def test_a_large_odd_file_is_read_or_refused_in_bounds(path: Path, content: bytes) -> None:
    bounded(lambda: survey(path, content))


def survey(path: Path, content: bytes) -> None:
    """As `judge`, a row at a time, as a run reads it."""
    path.write_bytes(content)
    try:
        table = read_csv(path)
        assert sum(1 for _ in table.rows()) == table.row_count
        assert len(table.warnings) < 100, "warnings are read by people"
    except InputError as error:
        check_words(error)
