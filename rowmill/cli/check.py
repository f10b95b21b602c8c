"""`rowmill check PLAY`: load a play and check all that can be known, without a broker or a call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rowmill.errors import UsageError

if TYPE_CHECKING:
    from rowmill.plays.compiled import CompiledColumn
    from rowmill.plays.loading import LoadedPlay


def check(
    play: Annotated[str, typer.Argument(help="The play: a .py file or a module's dotted name.")],
    input: Annotated[
        Path | None, typer.Option("--input", help="A CSV file whose columns the play must fit.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="KEY=VALUE; may stand several times.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Of the input; unset: UTF-8.")
    ] = None,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Check too that the play's secrets are set here.")
    ] = False,
) -> None:
    """Check a play, and an input where one is given. Nothing is started and nothing is called.

    Examples:

      rowmill check examples/sp500/play.py

      rowmill check play.py --input leads.csv --param base_url=http://127.0.0.1:8090 --secrets
    """
    from rowmill.plays.loading import load
    from rowmill.streams.adapters.csv import read_csv

    loaded = load(play, parsed_params(param or []))
    if secrets:
        loaded.check_secrets(_secret_is_set)
    lines = list(_described(loaded))
    if input is not None:
        table = read_csv(input, encoding)
        loaded.check_input(table.header, str(input))
        lines.append(f"input    {input}: {table.row_count:,} rows, {len(table.header)} columns")
        lines.extend(f"warning  {warning}" for warning in table.warnings)
    for line in lines:
        typer.echo(line)


def parsed_params(given: list[str]) -> dict[str, str]:
    """Return `--param` values as a mapping. Raises: UsageError for what is not KEY=VALUE.

    >>> parsed_params(["base_url=http://127.0.0.1:8090/?a=b"])
    {'base_url': 'http://127.0.0.1:8090/?a=b'}
    """
    params: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--param {text}: write KEY=VALUE.")
        if name in params:
            raise UsageError(f"--param {name} stands twice; give it once.")
        params[name] = value
    return params


def _secret_is_set(name: str) -> bool:
    from rowmill.errors import SecretMissing
    from rowmill.streams.adapters.secrets import EnvironmentSecrets

    try:
        return bool(EnvironmentSecrets().get(name))
    except SecretMissing:
        return False


def _described(loaded: LoadedPlay) -> Iterator[str]:
    reference, dataset = loaded.reference, loaded.dataset
    yield f"play     {reference.name}  digest {reference.digest}"
    yield f"dataset  {dataset.name}"
    for column in dataset.columns:
        yield f"column   {column.name}: {_kind(column)}"
    for provider in loaded.providers:
        limits = ", ".join(f"{rate.calls} per {rate.per_s:g} s" for rate in provider.limits)
        yield f"provider {provider.id}: {provider.base_url}  limits: {limits or 'none'}"
    for tool in loaded.tools:
        yield f"tool     {tool.id}: {tool.method} {tool.path}"
    for name, value in loaded.params.items():
        yield f"param    {name} = {value}"
    for secret in loaded.secrets:
        yield f"secret   {secret}, from ROWMILL_SECRET_{secret}"


def _kind(column: CompiledColumn) -> str:
    from rowmill.plays.compiled import PlainWork, ResolverWork, ToolWork

    match column.work:
        case ToolWork(tool=tool):
            return f"asks {tool.id}"
        case ResolverWork():
            return "resolver"
        case PlainWork():
            return "plain function"
