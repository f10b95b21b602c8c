"""What the feeder lets into `rows.input`: no secret, no row that is too large."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast
from urllib.parse import quote

import pytest

from rowmill.client.feed import Feeder, SourceRow, page_digest
from rowmill.settings import Settings
from rowmill.streams.adapters.log_writer import CarriesSecret, LogWriter
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.topics.catalogue import RUNS
from rowmill.topics.codec import decode
from rowmill.topics.contracts import RowInput

SECRET = "canary/s3cret+v4lue"
SECRETS = EnvironmentSecrets({"ROWMILL_SECRET_CANARY": SECRET})
SHOWN = [SECRET, base64.b64encode(b"ab" + SECRET.encode()).decode(), quote(SECRET, safe="")]


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def secret_in(self, value: bytes) -> str | None:
        return SECRETS.found_in(value)

    async def send(self, topic: Any, key: str, value: bytes, *, headers: Any) -> None:
        self.values.append(value)

    async def flush(self) -> None:
        return None


async def fed(rows: Sequence[SourceRow]) -> tuple[list[RowInput], bytes]:
    writer = Kept()
    feeder = Feeder(cast(LogWriter, writer), "r", 1, "leads", 1_000, lambda fed: None)

    async def pages() -> AsyncIterator[Sequence[SourceRow]]:
        yield rows

    await feeder.feed(pages(), [page_digest(rows)])
    return [decode(RowInput, value) for value in writer.values], b"\n".join(writer.values)


@pytest.mark.behaviour("R10")
@pytest.mark.parametrize("shown", SHOWN)
async def test_a_row_that_carries_a_secret_is_fed_without_its_values(shown: str) -> None:
    found, written = await fed([
        SourceRow("a", {"email": "a@x.test"}),
        SourceRow("b", {"email": f"<{shown}>"}),
        SourceRow("c", {"email": "c@x.test"}, refused=f"line 4: {shown}"),
    ])  # fmt: skip
    assert [row.values for row in found] == [{"email": "a@x.test"}, {}, {}]
    assert found[1].refused == (
        'dataset("leads"), row 2 of the input, carries the secret CANARY, which is not kept'
    )
    assert found[1].row not in ("b", found[2].row)
    assert shown.encode() not in written
    assert SECRETS.found_in(written) is None


@pytest.mark.behaviour("R9")
async def test_a_row_that_is_too_large_is_fed_without_its_values() -> None:
    (row,), _ = await fed([SourceRow("a", {"email": "x" * 2_000})])
    assert row.values == {}
    assert row.refused is not None
    assert 'dataset("leads"), row 1 of the input, has 2,' in row.refused


@pytest.mark.behaviour("R10")
@pytest.mark.parametrize("shown", SHOWN)
async def test_no_record_of_a_main_or_a_tool_carries_a_secret(shown: str) -> None:
    writer = LogWriter(Settings(kafka="127.0.0.1:1"), secrets=SECRETS)
    with pytest.raises(CarriesSecret, match='"run1" of "runs" carries the secret CANARY') as told:
        await writer.send(RUNS, "run1", f'{{"params":{{"key":"{shown}"}}}}'.encode())
    assert shown not in str(told.value)
    assert told.value.exit_code == 2
