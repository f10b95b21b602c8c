"""The file behind a sheet: who may open it, how, and what is said where it is not as needed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from rowmill.streams.adapters.sheet.reading import DatasetMissing, SheetReader
from rowmill.streams.adapters.sheet.url import normal_url, sheet_file
from rowmill.streams.adapters.sheet.writing import SqliteSheet
from rowmill.streams.core.chunks import Chunk, Span
from rowmill.streams.ports import SheetBehind, SheetUnusable, SheetUnwritable
from tests.conformance.sheet.writes import SOURCE, row


def put(sheet: SqliteSheet, offset: int, start: int | None) -> None:
    write = row(f"k{offset}", {"key": f"k{offset}"}, index=offset)
    sheet.flush(SOURCE, Chunk((Span(0, start, offset + 1, (offset,), (write,)),)))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("leads.sqlite", "is no URL. Give it as sqlite:///FILE"),
        ("postgresql://ann:pw@db/leads", r'"postgresql://ann:\*\*\*@db/leads": .*SQLite only'),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://host/leads", "only a file"),
        ("sqlite+aiosqlite:///x", "only a file"),
        ("sqlite:///x?mode=ro", "only a file"),
    ],
)
def test_a_url_that_is_no_sheet_is_refused_in_a_sentence(url: str, words: str) -> None:
    with pytest.raises(SheetUnusable, match=words) as refused:
        sheet_file(url)
    assert refused.value.exit_code == 3


def test_a_relative_url_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert normal_url("sqlite:///a.sqlite") == f"sqlite:///{tmp_path.resolve()}/a.sqlite"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(SheetUnusable, match=f"the directory {tmp_path}/no does not exist"):
        SqliteSheet(f"sqlite:///{tmp_path}/no/s.sqlite")


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "leads.csv"
    path.write_text("id,name\n1,Ann\n")
    with pytest.raises(SheetUnusable, match="is no SQLite database"):
        SqliteSheet(f"sqlite:///{path}")
    with pytest.raises(SheetUnusable, match="is no SQLite database"):
        SheetReader(f"sqlite:///{path}")
    assert path.read_text() == "id,name\n1,Ann\n"


def test_a_directory_is_no_sheet(tmp_path: Path) -> None:
    with pytest.raises(SheetUnusable, match="is no file"):
        SqliteSheet(f"sqlite:///{tmp_path}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_without_write_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.touch(mode=0o400)
    with pytest.raises(SheetUnusable, match="no permission to write"):
        SqliteSheet(f"sqlite:///{path}")


def test_the_files_are_the_users_own(tmp_path: Path) -> None:
    sheet = SqliteSheet(f"sqlite:///{tmp_path}/s.sqlite")
    put(sheet, 0, None)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    sheet.close()
    assert set(modes) >= {"s.sqlite", "s.sqlite-wal", "s.sqlite-sink.lock"}
    assert set(modes.values()) == {0o600}


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite"
    SqliteSheet(url).close()
    with sqlite3.connect(tmp_path / "s.sqlite") as connection:
        connection.execute("UPDATE _rowmill_format SET version = 2")
    for opens in (SqliteSheet, SheetReader):
        with pytest.raises(SheetUnusable, match="has format 2; this version reads 1"):
            opens(url)


def test_a_users_own_table_is_never_written(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.sqlite") as connection:
        connection.execute("CREATE TABLE leads (mine TEXT)")
    url = f"sqlite:///{tmp_path}/s.sqlite"
    sheet = SqliteSheet(url)
    put(sheet, 0, None)
    with SheetReader(url) as reader:
        assert reader.table_name("leads") == "leads_2"
    sheet.close()


def test_a_locked_sheet_is_unwritable_and_then_writable_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowmill.streams.adapters.sheet.schema.BUSY_TIMEOUT_S", 0.05)
    sheet = SqliteSheet(f"sqlite:///{tmp_path}/s.sqlite")
    with sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(SheetUnwritable, match="database is locked"):
            put(sheet, 0, None)
        shell.execute("ROLLBACK")
    put(sheet, 0, None)
    assert sheet.next_offsets(SOURCE) == {0: 1}
    sheet.close()


def test_an_older_copy_put_in_place_is_noticed(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.sqlite", tmp_path / "copy"
    sheet = SqliteSheet(f"sqlite:///{path}")
    put(sheet, 0, None)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    put(sheet, 1, 1)
    shutil.move(copy, path)
    with pytest.raises(SheetBehind, match="is at offset 1 of rows.completed/0, but was at 2"):
        put(sheet, 2, 2)
    sheet.close()


def test_a_deleted_sheet_is_noticed(tmp_path: Path) -> None:
    sheet = SqliteSheet(f"sqlite:///{tmp_path}/s.sqlite")
    put(sheet, 0, None)
    (tmp_path / "s.sqlite").unlink()
    with pytest.raises(SheetBehind, match="older copy"):
        put(sheet, 1, 1)
    sheet.close()


def test_a_reader_reads_while_the_writer_writes_and_after_it_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite"
    sheet = SqliteSheet(url)
    with SheetReader(url) as reader:
        for offset in range(3):
            put(sheet, offset, offset or None)
            assert len(list(reader.rows("leads"))) == offset + 1
        sheet.close()
        assert len(list(reader.rows("leads"))) == 3
    with SheetReader(url) as reader:
        assert reader.counts("leads", "run-1") == {"completed": 3}


def test_a_missing_sheet_and_a_missing_dataset_say_what_there_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite"
    with pytest.raises(SheetUnusable, match="No sheet at"):
        SheetReader(url)
    assert not (tmp_path / "s.sqlite").exists()
    sheet = SqliteSheet(url)
    with SheetReader(url) as reader:
        with pytest.raises(DatasetMissing, match="it holds none yet"):
            list(reader.rows("leads"))
        put(sheet, 0, None)
        with pytest.raises(DatasetMissing, match='No dataset "lead" .* it holds "leads"'):
            reader.columns("lead")
    sheet.close()


def test_a_database_that_is_no_sheet_says_so(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.sqlite") as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(SheetUnusable, match="is a database, but no sheet"):
        SheetReader(f"sqlite:///{tmp_path}/s.sqlite")


def test_more_columns_than_a_sheet_holds_are_refused_row_by_row(tmp_path: Path) -> None:
    from rowmill.streams.ports import RowsRefused

    sheet = SqliteSheet(f"sqlite:///{tmp_path}/s.sqlite")
    wide = row("wide", {f"c{number}": "x" for number in range(2_000)})
    span = Span(0, None, 2, (0, 1), (row("a"), wide))
    with pytest.raises(RowsRefused) as refused:
        sheet.flush(SOURCE, Chunk((span,)))
    assert list(refused.value.reasons) == [(0, 1)]
    assert "a sheet holds 1,900" in refused.value.reasons[0, 1]
    sheet.close()
