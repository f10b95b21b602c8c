"""What the faults share: the ledger, and a mill whose dispatch workers the test starts itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.asking import QUICK, write_play
from tests.kit.ledger import Ledger
from tests.kit.mill import Mill
from tests.kit.proxy import TunedBroker


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as found:
        yield found


@pytest.fixture(scope="module")
def shared_ledger() -> Iterator[Ledger]:
    """One for all cases of a module, each of which asks questions of its own."""
    with Ledger() as found:
        yield found


@pytest.fixture
def broker_of_mill(tmp_path: Path) -> Iterator[TunedBroker]:
    """The mill's broker, which can be reached through a proxy and compacts at once."""
    with TunedBroker(tmp_path) as found:
        yield found


@pytest.fixture
def mill(
    ledger: Ledger, broker_of_mill: TunedBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Mill]:
    """Rows and sink are up; dispatch workers are started by the test.

    Parametrised indirectly: with these settings instead of QUICK.
    """
    settings = getattr(request, "param", QUICK)
    play = write_play(tmp_path / "plays")
    port = broker_of_mill.settings.kafka_port
    with Mill(tmp_path, play=play, base_url=ledger.url, kafka_port=port, **settings) as found:
        found.env["ROWMILL_SECRET_WORKER"] = "none"
        found.up(dispatch=0)
        yield found
