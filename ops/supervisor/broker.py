"""The broker as the supervisor sees it: brought up if it is ours to run, and looked after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from rowmill.errors import InfrastructureError
from rowmill.ops.kafka import embedded
from rowmill.settings import Settings

CONNECT_S = 2.0
LOOK_EVERY_S = 0.5

log = structlog.get_logger(__name__)


async def reachable(bootstrap: str) -> bool:
    """Return whether one of `host:port[,host:port]` accepts a connection within `CONNECT_S`."""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            return True
    return False


class Broker:
    """The embedded broker of this home, or an existing cluster that is only waited for."""

    def __init__(self, settings: Settings, *, former_pid: int | None) -> None:
        """`former_pid`: the broker that a former supervisor of this home started and left."""
        self._settings = settings
        self._former_pid = former_pid
        self._pid: int | None = None
        self._up = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The broker that is ours to stop; None where it was there before, or is a cluster."""
        return self._pid

    async def start(self, note: Callable[[str], None]) -> None:
        """Start the broker unless it runs. Raises: InfrastructureError, with the reason."""
        if self._settings.embedded:
            broker = await asyncio.to_thread(embedded.start, self._settings, note)
            if not broker.already_running or broker.pid == self._former_pid:
                self._pid = broker.pid
        self._up.set()

    async def stop(self) -> None:
        """Stop the broker where it is ours to stop."""
        if self._pid is not None:
            await asyncio.to_thread(embedded.stop, self._settings)
            self._pid = None

    async def up(self) -> None:
        """Return once the broker accepts connections: a worker that starts before only dies."""
        await self._up.wait()
        while not await reachable(self._settings.bootstrap):
            await asyncio.sleep(LOOK_EVERY_S)

    async def look_after(self) -> None:
        """Start a broker of ours again whenever it is gone. Runs until it is cancelled."""
        while self._pid is not None:
            await asyncio.sleep(LOOK_EVERY_S)
            if await reachable(self._settings.bootstrap):
                continue
            log.warning("broker_gone", pid=self._pid)
            self._up.clear()
            try:
                broker = await asyncio.to_thread(embedded.start, self._settings)
            except InfrastructureError as error:
                log.error("broker_not_restarted", error=str(error))
            else:
                self._pid = broker.pid
                log.info("broker_restarted", pid=broker.pid)
            self._up.set()
