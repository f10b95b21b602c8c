"""Serve the practice provider over HTTP on this machine."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
import uvloop

from rowmill.errors import InfrastructureError
from rowmill.ops.provider.app import Behaviour, PracticeProvider
from rowmill.streams.ports import Note, silent

HOST = "127.0.0.1"
"""It answers anybody who asks and keeps nothing secret, so it stays on this machine."""

BACKLOG = 2048
"""Connections that may wait for acceptance; a benchmark opens hundreds at once."""


class PortTaken(InfrastructureError):
    """Another process listens on the port."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} on {HOST} is taken by another process. "
            "Choose another with --port, or --port 0 for any free one."
        )


def listen(port: int) -> socket.socket:
    """Return a listening socket on `port`, 0 for any free one.

    Raises: PortTaken; InfrastructureError where the system refuses the port for another reason.
    """
    try:
        return socket.create_server((HOST, port), backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(port) from error
        raise InfrastructureError(
            f"Can't listen on {HOST}:{port}: {error.strerror}. Choose another port with --port."
        ) from error


def serve(port: int, behaviour: Behaviour, note: Note = silent) -> None:
    """Serve until SIGINT or SIGTERM; prints the address once it answers.

    Raises: PortTaken and InfrastructureError as `listen`.
    """
    with listen(port) as listener:
        uvloop.run(_serve(listener, behaviour, note))


async def _serve(listener: socket.socket, behaviour: Behaviour, note: Note) -> None:
    config = uvicorn.Config(
        PracticeProvider(behaviour, note),
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        # Longer than clients keep idle connections, so that it is never the server that closes one
        # while a request is on its way.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
    )
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    await _Server(config, address).serve([listener])


class _Server(uvicorn.Server):
    """Ends cleanly on SIGINT and SIGTERM: uvicorn's own way raises the signal again afterwards, which
    would make a planned stop look like a kill."""

    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        # Only now: whoever reads this line may stop us at once.
        print(f"listening on {self._address}", flush=True)
        yield
