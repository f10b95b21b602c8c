"""The practice provider over real HTTP, in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from rowmill.errors import InfrastructureError
from rowmill.ops.provider import answers
from rowmill.ops.provider.server import PortTaken, listen
from tests.kit.provider import RunningProvider


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningProvider]:
    with RunningProvider.start(batch_max=3) as running:
        yield running


@pytest.fixture
def provider(shared: RunningProvider) -> RunningProvider:
    shared.reset()
    return shared


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


async def ask(
    http: aiohttp.ClientSession, url: str, question: Any, key: str = ""
) -> tuple[int, Any, dict[str, str]]:
    headers = {"Idempotency-Key": key} if key else {}
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    async with http.post(url, data=body, headers=headers) as response:
        answer = await response.json(content_type=None)
        return (
            response.status,
            answer,
            {name.lower(): text for name, text in response.headers.items()},
        )


async def test_answers_follow_the_question(
    provider: RunningProvider, http: aiohttp.ClientSession
) -> None:
    for path, question, expected in (
        ("/company", {"symbol": "MMM"}, answers.company("MMM")),
        ("/domain", {"company": "Ünï"}, answers.domain("Ünï")),
        ("/sector", {"sector": "Energy"}, answers.sector("Energy")),
        (
            "/company/batch",
            {"symbols": ["B", "A"]},
            {"results": [answers.company("B"), answers.company("A")]},
        ),
    ):
        status, answer, _ = await ask(http, provider.url + path, question)
        assert (status, answer) == (200, expected)
    async with http.get(provider.url + "/company", params={"symbol": "A&B"}) as response:
        assert await response.json() == answers.company("A&B")
    assert provider.stats()["paths"] == {
        "/company": 2,
        "/domain": 1,
        "/sector": 1,
        "/company/batch": 1,
    }


@pytest.mark.parametrize(
    ("path", "question", "status", "words"),
    [
        ("/company", b"", 422, "not JSON"),
        ("/company", b'{"symbol": NaN}', 422, "not JSON"),
        ("/company", b"[" * 100_000, 422, "not JSON"),
        ("/company", [1], 422, "must be a JSON object"),
        ("/company", {}, 422, '"symbol" must be a text'),
        ("/company", {"symbol": " "}, 422, '"symbol" must be a text'),
        ("/company/batch", {"symbols": "A"}, 422, "must be a list"),
        ("/company/batch", {"symbols": ["A"] * 4}, 422, "has 4 members, at most 3"),
        ("/company", b" " * ((1 << 20) + 1), 413, "more than 1,048,576 bytes"),
        ("/nothing", {}, 404, "not known here"),
    ],
)
async def test_a_bad_request_is_told_why_and_books_nothing(
    provider: RunningProvider,
    http: aiohttp.ClientSession,
    path: str,
    question: Any,
    status: int,
    words: str,
) -> None:
    found, answer, _ = await ask(http, provider.url + path, question, key="k")
    assert found == status
    assert words in answer["error"]["message"]
    assert provider.stats()["booked"] == 0


async def test_the_book_tells_keys_that_came_twice(
    provider: RunningProvider, http: aiohttp.ClientSession
) -> None:
    for key in ("one", "two", "one"):
        await ask(http, provider.url + "/company", {"symbol": "A"}, key)
    stats = provider.stats()
    assert (stats["calls"], stats["keys"], stats["booked"]) == (3, 2, 2)
    assert provider.repeated_keys() == {"one": 2}
    assert provider.stats_of("two") == {"key": "two", "arrived": 1, "answered": 1}


async def test_above_its_rate_it_says_when_to_come_back(http: aiohttp.ClientSession) -> None:
    with RunningProvider.start(limits="5/s,1000/min") as provider:
        url = provider.url + "/company"
        given = await asyncio.gather(*(ask(http, url, {"symbol": str(n)}) for n in range(20)))
        refused = [headers for status, _, headers in given if status == 429]
        assert 1 <= len(refused) <= 15
        assert {headers["retry-after"] for headers in refused} == {"1"}
        stats = provider.stats()
        assert (stats["rate_limited"], stats["booked"]) == (len(refused), 20 - len(refused))


async def test_every_nth_fails_before_it_is_booked(http: aiohttp.ClientSession) -> None:
    with RunningProvider.start(fail_every=3) as provider:
        url = provider.url + "/company"
        statuses = [(await ask(http, url, {"symbol": "A"}, f"k{n}"))[0] for n in range(7)]
        assert statuses == [200, 200, 500, 200, 200, 500, 200]
        stats = provider.stats()
        assert (stats["booked"], stats["failed_on_purpose"]) == (5, 2)


async def test_answers_wait_without_waiting_for_each_other(http: aiohttp.ClientSession) -> None:
    with RunningProvider.start(latency_ms=200) as provider:
        url = provider.url + "/company"
        await asyncio.gather(*(ask(http, url, {"symbol": str(n)}) for n in range(40)))
        assert provider.stats()["in_flight_max"] > 20


def test_a_taken_port_is_an_error_that_says_what_to_do(provider: RunningProvider) -> None:
    port = int(provider.url.rpartition(":")[2])
    with pytest.raises(PortTaken, match=rf"Port {port} on 127.0.0.1 is taken.*--port 0") as caught:
        listen(port)
    assert isinstance(caught.value, InfrastructureError)
    assert caught.value.exit_code == 3


def test_a_planned_stop_ends_cleanly() -> None:
    provider = RunningProvider.start()
    assert provider.stop() == 0
