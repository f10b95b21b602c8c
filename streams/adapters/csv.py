"""CSV in and out. Text stays text; what is wrong is said before anything is called.

A file is read twice: once in full when it is opened, to check it (encoding, quotes, number of rows,
ragged lines), once to hand its rows on. So a fault in line 900,000 is found before the first paid
call, and progress knows its total. Memory is bounded by the longest row both times.
"""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rowmill.errors import InputError
from rowmill.streams.core.names import field_names

CELL_CHARS_MAX = 4 << 20
"""Characters of one cell. A quote that is never closed would otherwise read the file into memory, four
bytes a character. A row holds 900 KiB at most (`ROWMILL_ROW_BYTES_MAX`)."""

LINE_CHARS_MAX = 8 << 20
"""Characters of one line: a file without line ends would otherwise be read into memory."""

RENAMED_SHOWN_MAX = 10
"""Warnings about headers; a sentence counts the others."""

_NO_CHARSETS = ("idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape")
"""What Python calls text encodings and no file is written in."""

_NO_ENCODING = "--encoding {}: no such encoding; try utf-8, cp1252 or utf-16. Nothing was called."

_BLOCK_BYTES = 1 << 20
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row. `index`: from 0; `line`: of the file, from 1, where it begins.

    `values`: field -> text, in order. `refused`: why it can't run (it fails alone, with no call),
    else None; `surplus`: the cells that have no header.
    """

    index: int
    line: int
    values: dict[str, str]
    refused: str | None = None
    surplus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CsvInput:
    """A CSV file that was read once and found usable.

    `header`: the fields, distinct (`core.names.field_names`); `original_header`: as in the file.
    `row_count`: rows that `rows` yields. `warnings`: sentences for people. `stamp`: size in bytes
    and time of change in nanoseconds, by which a file is known to be the one that was checked.
    """

    path: Path
    encoding: str
    header: list[str]
    original_header: list[str]
    row_count: int
    warnings: list[str]
    stamp: tuple[int, int]

    def rows(self) -> Iterator[CsvRow]:
        """Yield the rows in order, in bounded memory. Blank lines are no rows.

        Raises: InputError where the file has changed since it was checked.
        """
        if _stamp(self.path) != self.stamp:
            raise InputError(f"{self.path} has changed since it was checked; start again.")
        with _records(self.path, self.encoding) as records:
            next(records)
            for index, (line, cells) in enumerate(records):
                yield self._row(index, line, cells)

    def _row(self, index: int, line: int, cells: list[str]) -> CsvRow:
        width = len(self.header)
        if len(cells) == width:
            return CsvRow(index, line, dict(zip(self.header, cells, strict=True)))
        if len(cells) < width:
            filled = cells + [""] * (width - len(cells))
            return CsvRow(index, line, dict(zip(self.header, filled, strict=True)))
        return CsvRow(
            index,
            line,
            dict(zip(self.header, cells[:width], strict=True)),
            refused=f"line {line}: {len(cells)} cells, {width} headers",
            surplus=tuple(cells[width:]),
        )


def read_csv(path: str | os.PathLike[str], encoding: str | None = None) -> CsvInput:
    """Open a CSV file: comma-separated, quoted by `"`, the header in its first line.

    Args: `encoding`: a Python codec's name; None: UTF-8, with or without a byte-order mark.
    Raises: InputError (nothing was called) for a file that is missing, empty, not in the encoding,
    not comma-separated, badly quoted, or has a header but no rows.
    """
    file = Path(path)
    codec = _codec(encoding)
    stamp = _stamp(file)
    _check_encoding(file, codec, told=encoding is not None)
    with _records(file, codec) as records:
        first = next(records, None)
        if first is None:
            raise InputError(f"{file} is empty. Nothing was called.")
        header_line, header = first
        _check_delimiter(file, header_line, header)
        survey = _Survey(len(header))
        for line, cells in records:
            survey.add(line, cells)
        nul_count = records.nul_count
    if survey.rows == 0:
        raise InputError(f"{file} has a header and no rows. Nothing was called.")
    fields = list(field_names(header))
    return CsvInput(
        path=file,
        encoding=codec,
        header=fields,
        original_header=header,
        row_count=survey.rows,
        warnings=[*_renamed(header, fields), *survey.warnings(), *_sanitised(nul_count)],
        stamp=stamp,
    )


def write_csv(
    path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[str]]
) -> int:
    """Write a CSV file: UTF-8, lines end in LF, cells as they are. Returns the number of rows.

    The file appears whole or not at all: it is written beside its place and moved there. What is no
    regular file (`/dev/stdout`, a pipe) is written as it goes.
    Raises: InputError where the file can't be written.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="") as stream:
                return _write(stream, header, rows)
        target = target.resolve()  # a link stays a link
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
        try:
            with unfinished.open("w", encoding="utf-8", newline="") as stream:
                count = _write(stream, header, rows)
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror or error}.") from error
    return count


class _Records:
    """Iterator of (line, cells) over the records of an open file; blank lines are left out."""

    def __init__(self, path: Path, stream: IO[str]) -> None:
        self.nul_count = 0
        self._path = path
        # The limit is one per process, and this is the only reader of it.
        csv.field_size_limit(CELL_CHARS_MAX)
        self._reader = csv.reader(self._without_nul(stream), strict=True)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        return self

    def __next__(self) -> tuple[int, list[str]]:
        while True:
            line = self._reader.line_num + 1
            try:
                cells = next(self._reader)
            except csv.Error as error:
                raise InputError(self._quoting_problem(line, error)) from None
            if cells:
                return line, cells

    def _without_nul(self, stream: IO[str]) -> Iterator[str]:
        while text := stream.readline(LINE_CHARS_MAX):
            if len(text) == LINE_CHARS_MAX and text[-1] not in "\r\n":
                raise InputError(
                    f"{self._path}, line {self._reader.line_num + 1}: more than "
                    f"{LINE_CHARS_MAX:,} characters without a line end. Nothing was called."
                )
            if "\0" in text:
                self.nul_count += text.count("\0")
                text = text.replace("\0", "")
            yield text

    def _quoting_problem(self, line: int, error: csv.Error) -> str:
        place = f"{self._path}, line {line}"
        if "unexpected end of data" in str(error):
            return f"{place}: a quote is opened here and never closed. Nothing was called."
        if "field larger than field limit" in str(error):
            return (
                f"{place}: a cell of more than {CELL_CHARS_MAX:,} characters; is a quote left "
                "open? Nothing was called."
            )
        return f'{place}: bad quoting ({error}); write " inside quotes as "". Nothing was called.'


@contextmanager
def _records(path: Path, encoding: str) -> Iterator[_Records]:
    """Open a file that was checked, its line ends untouched."""
    with path.open(encoding=encoding, errors="strict", newline="") as stream:
        yield _Records(path, stream)


class _Survey:
    """What the first reading counts."""

    def __init__(self, width: int) -> None:
        self.rows = 0
        self._width = width
        self._short = self._long = 0
        self._short_line = self._long_line = 0

    def add(self, line: int, cells: list[str]) -> None:
        """Count one record."""
        self.rows += 1
        if len(cells) < self._width:
            self._short += 1
            self._short_line = self._short_line or line
        elif len(cells) > self._width:
            self._long += 1
            self._long_line = self._long_line or line

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each kind of ragged row."""
        if self._short:
            yield (
                f"{_rows(self._short)} with fewer cells than headers, filled with empty cells; "
                f"the first is line {self._short_line}."
            )
        if self._long:
            yield (
                f"{_rows(self._long)} with more cells than headers, which will fail; "
                f"the first is line {self._long_line}."
            )


def _codec(encoding: str | None) -> str:
    if encoding is None:
        return "utf-8-sig"
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):
        raise InputError(_NO_ENCODING.format(ascii(encoding)[1:-1][:60])) from None
    name = found.name
    if not found._is_text_encoding or name.replace("-", "_") in _NO_CHARSETS:
        raise InputError(_NO_ENCODING.format(name))
    return "utf-8-sig" if name == "utf-8" else name


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: no such file. Nothing was called.") from None
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}. Nothing was called.") from None
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise InputError(f"{path} is {kind}, not a CSV file. Nothing was called.")
    return status.st_size, status.st_mtime_ns


def _check_encoding(path: Path, codec: str, *, told: bool) -> None:
    """Decode the whole file once, by block. Raises: InputError naming the first wrong byte."""
    decoder = codecs.getincrementaldecoder(codec)(errors="strict")
    read = 0
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                read += len(block)
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}. Nothing was called.") from None
    except UnicodeDecodeError as error:
        # The decoder may have been handed more (bytes it kept) or less (no mark) than the block;
        # where both end is the same.
        offset = read - len(error.object) + error.start
        named = "UTF-8" if codec == "utf-8-sig" else codec
        hint = "Try another --encoding." if told else f"Try --encoding {_likely(path)}."
        raise InputError(
            f"{path} byte {offset} (0x{error.object[error.start]:02X}) is not {named}. {hint} "
            "Nothing was called."
        ) from None
    except UnicodeError as error:  # such as UTF-16 without a byte-order mark
        raise InputError(f"{path} is not {codec}: {error}. Nothing was called.") from None


def _likely(path: Path) -> str:
    with path.open("rb") as stream:
        utf_16 = stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if utf_16 else "cp1252"


def _check_delimiter(path: Path, line: int, header: list[str]) -> None:
    if len(header) != 1:
        return
    for char, name in _OTHER_DELIMITERS.items():
        if char in header[0]:
            raise InputError(
                f"{path}, line {line}: the header is one column that holds {name}: "
                f"{header[0][:60]!r}. Save the file with commas. Nothing was called."
            )


def _renamed(header: list[str], fields: list[str]) -> Iterator[str]:
    pairs = enumerate(zip(header, fields, strict=True), 1)
    renamed = [(place, *pair) for place, pair in pairs if pair[0] != pair[1]]
    for place, original, name in renamed[:RENAMED_SHOWN_MAX]:
        said = f'"{original}" stands twice' if original.strip() else "has no header"
        yield f'column {place} {said}: the play sees it as "{name}".'
    if (more := len(renamed) - RENAMED_SHOWN_MAX) > 0:
        yield f"{more:,} more column{'s' * (more > 1)} stand twice or have no header."


def _sanitised(nul_count: int) -> Iterator[str]:
    if nul_count:
        yield f"{nul_count:,} NUL character{'s' * (nul_count > 1)} removed from cells."


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count > 1)}"


def _write(stream: IO[str], header: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    plain = csv.writer(stream, lineterminator="\n")
    # Python quotes a lone CR only where CR is part of the line end, and readers would split there.
    quoted = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(header)
    count = 0
    for row in rows:
        writer = quoted if any("\r" in cell for cell in row) else plain
        writer.writerow(row)
        count += 1
    return count
