"""The simulated provider: books once a key, answers, refuses, hangs, resets; outlives its clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.ports import NotSent, Send

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

Reply = Callable[[Outcome], None]
CONNECT_S = (0.0, 0.001, 0.001, 0.03, 0.5, 3.0)
LATENCIES_MS = (20, 100, 400, 1_500, 6_000, 15_000)


@dataclass
class Mood:
    """Parts of requests that go wrong now. `poison`: a question that kills whoever sends it."""

    storm: float = 0.02
    busy: float = 0.03
    reset_before: float = 0.02
    reset_after: float = 0.02
    hang: float = 0.01
    poison: str | None = None
    latencies_ms: tuple[int, ...] = LATENCIES_MS


CALM = Mood(0, 0, 0, 0, 0, latencies_ms=LATENCIES_MS[:3])
"""Nothing goes wrong, and quickly so."""


def refused(status: int | None, *, booked: bool, waits_ms: int | None = None) -> Refused:
    """Return a refusal as `adapters/http_answers.py` judges it."""
    return Refused(
        kind=FailureKind.TRANSIENT,
        message=f"status {status}",
        retryable=True,
        maybe_booked=booked,
        reached=True,
        status_code=status,
        retry_after_ms=waits_ms,
        waits=waits_ms is not None,
    )


@dataclass
class Service:
    """The provider. `of` is what one process sees of it."""

    world: World
    chance: random.Random
    mood: Mood = field(default_factory=Mood)
    booked: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    calls: int = 0

    def of(self, process: Process) -> Client:
        """Return the port of one process."""
        return Client(self, process)

    def arrive(self, send: Send, instance: str, reply: Reply) -> None:
        """A request of an instance is there."""
        if send.input["q"] == self.mood.poison:
            self.world.kill_for_a_while(instance)
        self.calls += 1
        key, question, chance, mood = send.idempotency_key, send.input["q"], self.chance, self.mood
        self._note("arrived", key, tool=send.tool.path, digest=question)
        idempotent = send.tool.idempotent
        if idempotent and key in self.booked:
            self._reply(key, reply, 200, answer(question), chance.choice(LATENCIES_MS[:2]))
        elif idempotent and key in self.open:
            self._reply(key, reply, 409, refused(409, booked=True))
        elif question.startswith("bad"):
            never = Refused(
                FailureKind.PERMANENT, "status 400", False, False, True, status_code=400
            )
            self._reply(key, reply, 400, never, chance.choice(mood.latencies_ms))
        elif chance.random() < mood.storm:
            wait_ms = chance.choice((0, 1, 700, 5_000))
            self._reply(key, reply, 429, refused(429, booked=False, waits_ms=wait_ms))
        elif chance.random() < mood.reset_before:
            self._reply(key, reply, "reset", refused(None, booked=True))
        elif chance.random() < mood.busy:
            self._reply(key, reply, 503, refused(503, booked=True))
        else:
            self.open.add(key)
            latency_ms = chance.choice(mood.latencies_ms) * (0.5 + chance.random())
            self.world.after(latency_ms, lambda: self._book(key, question, reply))

    def _book(self, key: str, question: str, reply: Reply) -> None:
        self.open.discard(key)
        self.booked.add(key)
        self._note("booked", key)
        if self.chance.random() < self.mood.hang:
            self._note("replied", key, status="hung")
        elif self.chance.random() < self.mood.reset_after:
            self._reply(key, reply, "reset", refused(None, booked=True))
        else:
            self._reply(key, reply, 200, answer(question))

    def _reply(
        self, key: str, reply: Reply, status: Any, outcome: Outcome, after_ms: float = 0
    ) -> None:
        self._note("replied", key, status=status)
        self.world.after(after_ms + self.chance.choice((1, 5, 60)), lambda: reply(outcome))

    def _note(self, event: str, key: str, **fields: Any) -> None:
        self.world.note("provider-0", event, key=key, **fields)


def answer(question: str) -> Answered:
    """Return the answer to a question: a pure function of it."""
    return Answered({"q": question}, 20, 1.0)


def settle(future: asyncio.Future[Any], value: Any) -> None:
    """Settle a future, unless whoever waited has gone."""
    if not future.done():
        future.set_result(value)


class Client:
    """Fulfils `ports.Provider` for one process."""

    def __init__(self, service: Service, process: Process) -> None:
        self._service = service
        self._process = process

    async def call(self, send: Send) -> Outcome:
        """Connect, ask once more whether it may leave, send, wait."""
        process, world = self._process, self._service.world
        await asyncio.sleep(process.chance.choice(CONNECT_S))
        if not send.may_leave():
            raise NotSent
        heard: asyncio.Future[Outcome] = process.loop.create_future()

        def reply(outcome: Outcome) -> None:
            if process.alive:
                process.loop.call_soon(settle, heard, outcome)

        way_ms = process.chance.choice((0.5, 2, 30))
        world.after(way_ms, lambda: self._service.arrive(send, process.instance, reply))
        try:
            async with asyncio.timeout(send.timeout_s):
                return await heard
        except TimeoutError:
            return refused(None, booked=True)

    async def close(self) -> None:
        """Nothing is open."""
