"""What a seed's world is made of: how many of each, how fast, and what its run records say."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from rowmill.plays.specs import ProviderSpec, Rate, RetryPolicy, ToolSpec
from rowmill.settings import Settings
from rowmill.streams.core.commands import Force
from rowmill.topics import codec
from rowmill.topics.contracts import LaneRecord, PlayReference, RunOptions, RunRecord
from tests.history.invariant import Limits, Window

RUNS = ("run-a", "run-b")
COLUMNS = ("first", "second", "blind")
SESSION_S = 10.0
TIMEOUT_S = 30.0
WINDOWS = ((2, 1_000), (5, 1_000), (8, 10_000))
"""(calls, per_ms) of the paced lane. The last is longer than an owner's recovery takes."""

DAY_S = 86_400
CLOCK_JUMPS_MS = (-30_000, 120_000)
"""How far a wall clock is moved, at most, backwards and forwards."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and limits of one world.

    `rows` of each run, `open_max` of them open at a time. `force`: what the second run asks again.
    `stale_after_s`: answers that are older are asked again by the second run. `jumps`: wall clocks
    are moved. `ttl_s`: receipts that settled longer ago are deleted by a new owner, 0: none. `forgets`:
    an operator wants receipts gone.
    """

    dispatchers: int = 2
    partitions: int = 4
    rows: int = 10
    open_max: int = 6
    lease_s: int = 8
    window: tuple[int, int] = (5, 1_000)
    paced_open_max: int = 4
    free_open_max: int = 8
    key_lifetime_s: int = 120
    force: Force | None = None
    stale_after_s: float | None = None
    jumps: bool = False
    ttl_s: int = 0
    forgets: bool = False

    @classmethod
    def of(cls, chance: random.Random) -> Shape:
        """Draw one."""
        return cls(
            dispatchers=chance.choice((2, 2, 3)),
            partitions=chance.choice((2, 4, 4)),
            rows=chance.randint(4, 16),
            open_max=chance.choice((3, 6, 12, 32)),
            lease_s=chance.choice((8, 20)),
            window=chance.choice(WINDOWS),
            paced_open_max=chance.choice((2, 4)),
            free_open_max=chance.choice((4, 8)),
            key_lifetime_s=chance.choice((25, 120)),
            force=chance.choice((None, None, None, "failed", "all")),
            stale_after_s=chance.choice((None, None, None, 15.0)),
            jumps=chance.random() < 0.2,
            ttl_s=chance.choice((0, 0, 0, 0, 20)),
            forgets=chance.random() < 0.15,
        )

    @property
    def settings(self) -> Settings:
        """What the processes run with."""
        return _settings(self.lease_s, self.partitions, self.ttl_s)

    @property
    def limits(self) -> Limits:
        """What the history is held to.

        The age of a key outlives its sender on the wall clock only: where that is moved, so is the
        end of the key's life.
        """
        jump_ms = 2 * max(CLOCK_JUMPS_MS) if self.jumps else 0
        return Limits(
            windows={"paced": (Window(*self.window),)},
            concurrency={"paced": self.paced_open_max, "free": self.free_open_max},
            lease_ms=self.lease_s * 1000,
            session_ms=round(SESSION_S * 1000),
            key_lifetime_ms={"paced.second": self.key_lifetime_s * 1000 + jump_ms},
            asked_again=bool(self.force or self.stale_after_s or self.ttl_s or self.forgets),
        )

    def lane_of(self, tool: str) -> LaneRecord:
        """Return where a tool's receipts live: a limited provider's in one partition."""
        return _lanes(self.partitions)[tool]

    def run_records(self) -> list[tuple[str, bytes]]:
        """Return what the topic `runs` holds."""
        return _run_records(
            self.window, self.paced_open_max, self.free_open_max, self.key_lifetime_s
        )


@lru_cache
def _settings(lease_s: int, partitions: int, ttl_s: int) -> Settings:
    # Not read: a simulation follows from its seed, whatever the environment says.
    return Settings.model_construct(
        session_timeout_s=SESSION_S,
        lease_s=float(lease_s),
        partitions=partitions,
        drain_s=60.0,
        receipt_ttl_days=ttl_s / DAY_S,
    )


@lru_cache
def _lanes(partitions: int) -> dict[str, LaneRecord]:
    every = list(range(partitions))
    return {
        "paced.second": LaneRecord(tool="paced.second", lane="paced", partitions=[1]),
        "free.first": LaneRecord(tool="free.first", lane="free", partitions=every),
        "free.blind": LaneRecord(tool="free.blind", lane="free", partitions=every),
    }


TOOL_OF = {"first": "free.first", "second": "paced.second", "blind": "free.blind"}
"""The tool that each column asks."""


@lru_cache
def _run_records(
    window: tuple[int, int], paced_open_max: int, free_open_max: int, key_lifetime_s: int
) -> list[tuple[str, bytes]]:
    retry = RetryPolicy(attempts=8, backoff_s=0.2, backoff_s_max=4, deadline_s=300)
    rate = Rate(calls=window[0], per_s=window[1] / 1000)
    providers = [
        ProviderSpec(
            id="paced", base_url="http://p.test", limits=(rate,), concurrency=paced_open_max,
            retry=retry,
        ),
        ProviderSpec(
            id="free", base_url="http://f.test", concurrency=free_open_max,
            retry=retry.model_copy(update={"attempts": 3}),
        ),
    ]  # fmt: skip
    tools = [
        ToolSpec(id="free.first", provider="free", path="/first", timeout_s=TIMEOUT_S),
        ToolSpec(
            id="paced.second", provider="paced", path="/second", timeout_s=TIMEOUT_S,
            key_lifetime_s=key_lifetime_s,
        ),
        ToolSpec(
            id="free.blind", provider="free", path="/blind", timeout_s=TIMEOUT_S, idempotent=False
        ),
    ]  # fmt: skip
    return [
        (
            run,
            codec.encode(
                RunRecord(
                    run=run, life=1, claim="c", instance="i", pid=1, state="open",
                    started_at_ms=0, updated_at_ms=0, dataset="d",
                    play=PlayReference(name="p", digest="x"), options=RunOptions(),
                    providers=providers, tools=tools,
                )
            ),
        )
        for run in RUNS
    ]  # fmt: skip
