"""`rowmill run`: a play over an input, from start to sheet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rowmill.cli.prepare import Order
    from rowmill.client import RunReport

Play = Annotated[str, typer.Argument(help="The play: a .py file or a module's dotted name.")]
Input = Annotated[Path, typer.Option("--input", metavar="FILE", help="A CSV file.")]
Sheet = Annotated[
    str | None,
    typer.Option("--sheet", metavar="URL", help="Where rows go: sqlite:///FILE; unset: home."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write a CSV at the end.")]
RunId = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="The same id resumes; unset: new.")
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", metavar="N", min=1, help="Rows open at once; unset: 50."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N rows.")
]
MaxCalls = Annotated[
    int | None,
    typer.Option("--max-calls", metavar="N", min=0, help="Buy at most N answers in this run."),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget", metavar="X", min=0, help="Spend at most X in this run, by the tools' costs."
    ),
]
OnRowError = Annotated[
    Literal["fail", "continue"],
    typer.Option("--on-row-error", help="fail: the first failed row stops the run."),
]
Param = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="KEY=VALUE", help="A parameter of the play; repeatable."),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", metavar="E", help="Of the input; unset: UTF-8.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Ask every call again, once; it is paid again.")
]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Ask failed calls again; with --run-id its failed rows."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object; all else on standard error.")
]


def run(
    play: Play,
    input: Input,
    sheet: Sheet = None,
    out: Out = None,
    run_id: RunId = None,
    concurrency: Concurrency = None,
    limit: Limit = None,
    max_calls: MaxCalls = None,
    budget: Budget = None,
    on_row_error: OnRowError = "continue",
    param: Param = None,
    encoding: Encoding = None,
    force: Force = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
) -> None:
    """Run a play over an input.

    Examples:

      rowmill run play.py --input leads.csv --limit 5

      rowmill run play.py --input leads.csv --out enriched.csv

      rowmill run play.py --input leads.csv --run-id 7f3a9c01    goes on where that run stopped

      rowmill run play.py --input leads.csv --run-id 7f3a9c01 --retry-failed    its failed rows again

    Starts what is missing (broker, workers) and stops it again. Ctrl-C stops the run and prints the
    command that resumes it. So does a limit that is reached (--max-calls, --budget; they count over all
    lives of a run, and hold until others are given) and a provider that is out of credits: what was
    bought is kept, the other rows wait. Exit codes: 0 every row ended well; 1 some failed or wait; 2 the
    command, the play or the input is wrong, nothing was called; 3 broker, sheet or disk; 130 Ctrl-C.
    """
    from rowmill.cli.check import parsed_params
    from rowmill.cli.prepare import Order

    order = Order(
        play=play,
        input=input,
        params=parsed_params(param or []),
        sheet=sheet,
        out=out,
        run_id=run_id,
        concurrency=concurrency,
        limit=limit,
        max_calls=max_calls,
        budget=budget,
        on_row_error=on_row_error,
        encoding=encoding,
        force=force,
        retry_failed=retry_failed,
    )
    raise typer.Exit(_carry_out(order, as_json=as_json))


def _carry_out(order: Order, *, as_json: bool) -> int:
    from rowmill.cli.driving import drive
    from rowmill.cli.prepare import prepare
    from rowmill.cli.words import plain
    from rowmill.settings import Settings

    def note(text: str) -> None:
        typer.echo(plain(text), err=True)

    def tell(report: RunReport) -> None:
        _print_report(report, as_json=as_json)

    prepared = prepare(order, Settings())
    for warning in prepared.warnings:
        note(f"{order.input}: {warning}")
    return drive(prepared, note=note, tell=tell).exit_code


def _print_report(report: RunReport, *, as_json: bool) -> None:
    from rowmill.cli.endings import end_block, new_run_command, resume_command

    if as_json:
        typer.echo(report.to_json())
        return
    again = resume_command(report.run_id) if report.pending else new_run_command()
    if report.state == "paused":
        again = ""  # the sentence that the command ends with says it
    for text in end_block(report, again):
        typer.echo(text)
