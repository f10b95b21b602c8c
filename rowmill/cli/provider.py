"""`rowmill provider`: a provider to practise on."""

from __future__ import annotations

from typing import Annotated

import typer

provider = typer.Typer(help="A provider to practise on.", no_args_is_help=True)


@provider.callback()
def _group() -> None:
    """A provider to practise on: deterministic answers, limits and faults on demand."""


@provider.command()
def serve(
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 for any free one.", min=0, max=65_535)
    ] = 8090,
    latency_ms: Annotated[
        float, typer.Option(help="Milliseconds before each answer.", min=0, max=900_000)
    ] = 0,
    limits: Annotated[
        str,
        typer.Option(
            help="Requests in any such time, as 200/s or 10/s,100/min; above it 429 with Retry-After."
        ),
    ] = "",
    fail_every: Annotated[
        int,
        typer.Option(help="Every Nth request answers 500 and books nothing. 0: none.", min=0),
    ] = 0,
    batch_max: Annotated[int, typer.Option(help="Members of one batch request.", min=1)] = 50,
) -> None:
    """Serve until Ctrl-C. GET /stats tells what came, POST /reset forgets it.

    POST /company {"symbol": …}, /domain {"company": …}, /sector {"sector": …} and /company/batch
    {"symbols": […]} answer the same for the same question, for any question.
    """
    # Here, so that the other commands need not load a web server.
    from rowmill.ops.provider.app import Behaviour
    from rowmill.ops.provider.server import serve as serve_practice_provider
    from rowmill.plays.providers import rate
    from rowmill.settings import Settings
    from rowmill.streams.adapters.history import history_of

    windows = [rate(text.strip()) for text in limits.split(",") if text.strip()]
    admitted = tuple((window.calls, window.per_s) for window in windows)
    behaviour = Behaviour(latency_ms, admitted, fail_every, batch_max)
    serve_practice_provider(port, behaviour, history_of(Settings(), "provider"))
