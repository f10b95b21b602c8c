"""Dispatch waits for leases, backoffs and gates; here they pass at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.kit.virtual import VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let this folder's tests run on virtual time."""
    return {"virtual": VirtualLoop}
