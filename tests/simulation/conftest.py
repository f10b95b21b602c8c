"""Simulated seeds log nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.command import quieten


@pytest.fixture(autouse=True, scope="package")
def quiet() -> Iterator[None]:
    """Let the roles log nothing meanwhile."""
    quieten()
    yield
    structlog.reset_defaults()
