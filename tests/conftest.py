"""Fixtures of all tests: the session's broker, and settings for a mill of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rowmill.settings import Settings
from tests.kit.broker import SessionBroker, chosen, fresh_settings

_used = pytest.StashKey[SessionBroker]()


def pytest_report_header() -> str:
    """Name the broker that tests will use, before any runs."""
    return f"broker: {chosen()}, started by the first test that needs it"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the broker that tests did use."""
    if used := config.stash.get(_used, None):
        terminalreporter.write_line(
            f"broker used: {chosen()} at {used.bootstrap}, ready in {used.started_in_s:.1f} s"
        )


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SessionBroker]:
    """A broker for the whole session: embedded, or as ROWMILL_KAFKA / ROWMILL_TEST_CONTAINERS say."""
    found = SessionBroker.start(tmp_path_factory.mktemp("broker"))
    pytestconfig.stash[_used] = found
    yield found
    found.stop()


@pytest.fixture
def mill_settings(broker: SessionBroker, tmp_path: Path) -> Settings:
    """Settings with the session's broker, a topic prefix and a home of this test's own."""
    return fresh_settings(broker, tmp_path / "home")
