"""What all targets share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.fuzz.strict_engine import Loop


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    """A loop for the examples of one module."""
    found = Loop()
    yield found
    found.close()


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> Iterator[None]:
    """Write no log: an example sets aside a record, and there are thousands."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=silent, cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
