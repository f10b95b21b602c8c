"""`rowmill sheet`: what the sheet holds, and out of it into a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

if TYPE_CHECKING:
    from rowmill.streams.adapters.sheet.reading import SheetReader

# SQLAlchemy is imported inside the commands: help must not wait for it.

app = typer.Typer(
    no_args_is_help=True,
    help="""Look at the sheet, export it.

    Examples:

      rowmill sheet list

      rowmill sheet export --out enriched.csv

      rowmill sheet export --dataset leads --run 7f3a --format jsonl
    """,
)

Url = Annotated[
    str,
    typer.Option("--sheet", metavar="URL", help="sqlite:///FILE; default: the setting `sheet`."),
]
Dataset = Annotated[
    str, typer.Option("--dataset", metavar="NAME", help="Which; default: the only one.")
]
Run = Annotated[
    str, typer.Option("--run", metavar="ID", help="Only rows that this run wrote last.")
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="Where to; - is standard output.")]
Safe = Annotated[
    bool,
    typer.Option(
        "--spreadsheet-safe", help="Put ' before cells that a spreadsheet would run (= + - @)."
    ),
]


@app.command(name="list")
def list_(sheet: Url = "") -> None:
    """Show the datasets, their tables, and the rows of each run by status.

    Example: rowmill sheet list --sheet sqlite:///leads.sqlite
    """
    with _reader(sheet) as reader:
        for dataset in reader.datasets():
            typer.echo(f'{dataset}  (table "{reader.table_name(dataset)}")')
            for run in reader.runs(dataset):
                counts = sorted(reader.counts(dataset, run).items())
                typer.echo(f"  {run}  {', '.join(f'{rows:,} {status}' for status, rows in counts)}")


@app.command()
def export(
    dataset: Dataset = "",
    run: Run = "",
    out: Out = "-",
    sheet: Url = "",
    format: Annotated[
        Literal["csv", "jsonl"], typer.Option("--format", help="One line a row.")
    ] = "csv",
    spreadsheet_safe: Safe = False,
) -> None:
    """Write a dataset's rows, in the order of the input: input columns first, outputs after them.

    Duplicates in the input have no row of their own; `rowmill run --out` repeats them.

    Example: rowmill sheet export --dataset leads --out enriched.csv
    """
    from rowmill.errors import UsageError
    from rowmill.streams.adapters.sheet.export import export_csv, export_jsonl

    if spreadsheet_safe and format != "csv":
        raise UsageError("--spreadsheet-safe is for --format csv.")
    with _reader(sheet) as reader:
        name = dataset or _only_dataset(reader)
        if run:
            _check_run(reader, name, run)
        reader.columns(name)  # a missing dataset is told before FILE is touched
        with _opened(out) as file:
            if format == "jsonl":
                exported = export_jsonl(reader, name, file, run=run or None)
            else:
                exported = export_csv(
                    reader, name, file, run=run or None, spreadsheet_safe=spreadsheet_safe
                )
    typer.echo(f"{exported.lines:,} rows of {name}.", err=True)
    if exported.unfinished:
        typer.echo(f"{exported.unfinished:,} of them are still running.", err=True)
    if exported.formulas and not spreadsheet_safe:
        typer.echo(
            f"{exported.formulas:,} cells begin like a formula; for a spreadsheet: "
            "--spreadsheet-safe",
            err=True,
        )


@contextmanager
def _reader(url: str) -> Iterator[SheetReader]:
    from rowmill.settings import Settings
    from rowmill.streams.adapters.sheet.reading import SheetReader

    with SheetReader(url or Settings().sheet_url) as reader:
        yield reader


@contextmanager
def _opened(out: str) -> Iterator[TextIO]:
    """Open the file so that it is complete or not there; "-" is standard output, in UTF-8."""
    from rowmill.errors import UsageError

    if out == "-":
        # Cells keep their own line ends, whatever the terminal's are.
        sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]  # a TextIO
        yield sys.stdout
        return
    path = Path(out)
    # A device or a pipe is written as it is: putting a file in its place would remove it.
    partial = path if _is_special(path) else path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            yield file
        if partial != path:
            partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}.") from error
    finally:
        if partial != path:
            partial.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _only_dataset(reader: SheetReader) -> str:
    from rowmill.errors import UsageError

    found = reader.datasets()
    if len(found) == 1:
        return found[0]
    names = ", ".join(f'"{name}"' for name in found)
    if not found:
        raise UsageError(f"Sheet {reader.path} holds no dataset yet.")
    raise UsageError(f"Sheet {reader.path} holds {names}. Choose one with --dataset.")


def _check_run(reader: SheetReader, dataset: str, run: str) -> None:
    from rowmill.errors import UsageError

    known = reader.runs(dataset)
    if run not in known:
        newest = ", ".join(reversed(known[-5:])) or "none"
        raise UsageError(
            f'No row of dataset "{dataset}" was last written by run "{run}"; newest runs: {newest}.'
        )
