"""The practice provider's book: what came, how often under one idempotency key, what was given."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

KEYS_MAX = 2_000_000
"""Idempotency keys remembered; some 75 bytes each and count. Later ones are counted as untracked."""

REPEATED_LISTED_MAX = 10_000
"""Keys named in one answer of /stats."""


class KeyCounts:
    """How often each idempotency key came. A key that came once costs its 64-bit hash only."""

    def __init__(self) -> None:
        self._once: set[int] = set()
        self.repeated: dict[str, int] = {}
        self.untracked = 0

    def __len__(self) -> int:
        return len(self._once)

    def add(self, key: str) -> None:
        """Count `key` once more."""
        hashed = hash(key)
        if hashed in self._once:
            self.repeated[key] = self.repeated.get(key, 1) + 1
        elif len(self._once) < KEYS_MAX:
            self._once.add(hashed)
        else:
            self.untracked += 1

    def of(self, key: str) -> int:
        """Return how often `key` came."""
        return self.repeated.get(key, int(hash(key) in self._once))


class Questions:
    """How often the same question came, whatever its idempotency key: what is paid again.

    A question counts once it has arrived in full. `repeated`: arrivals after its first;
    `repeated_answered`: those of them after the mark, answered before it. Each is remembered by a
    64-bit hash; those beyond KEYS_MAX are not.
    """

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self._answered: set[int] = set()
        self._answered_before_mark: frozenset[int] = frozenset()
        self.repeated = 0
        self.repeated_answered = 0

    def ask(self, path: str, content: bytes) -> int:
        """Count a question; return what `answer` is told when it has its answer."""
        question = hash((path, content))
        if question in self._asked:
            self.repeated += 1
            self.repeated_answered += question in self._answered_before_mark
        elif len(self._asked) < KEYS_MAX:
            self._asked.add(question)
        return question

    def answer(self, question: int) -> None:
        """The question is answered with a value."""
        if len(self._answered) < KEYS_MAX:
            self._answered.add(question)

    def mark(self) -> None:
        """From now on tell apart what is asked again although it was answered before now."""
        self._answered_before_mark = frozenset(self._answered)


class Windows:
    """Sliding windows over admitted requests: at most `calls` in any `per_s` seconds, for each."""

    def __init__(self, limits: Sequence[tuple[int, float]]) -> None:
        self._limits = [(per_s, deque[float](maxlen=calls)) for calls, per_s in limits]

    def wait_s(self, now_s: float) -> float:
        """Admit a request and return 0, or return after how many seconds the next one would be."""
        waits = (
            per_s - (now_s - admitted[0])
            for per_s, admitted in self._limits
            if len(admitted) == admitted.maxlen
        )
        wait = max(waits, default=0.0)
        if wait > 0:
            return wait
        for _, admitted in self._limits:
            admitted.append(now_s)
        return 0


class Book:
    """Everything `GET /stats` tells."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.arrived = KeyCounts()
        self.booked = KeyCounts()
        self.questions = Questions()
        self.booked_without_key = 0
        self.in_flight = 0
        self.in_flight_max = 0
        self._first_s = self._last_s = 0.0

    @property
    def calls(self) -> int:
        """Requests for an operation, however they were answered."""
        return self.paths.total()

    def arrive(self, path: str, key: str) -> None:
        """A request for an operation came; `key` is empty where it carried none."""
        self.paths[path] += 1
        if key:
            self.arrived.add(key)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def admit(self, now_s: float) -> None:
        """A request is within all limits. `now_s`: any clock, always the same."""
        self._first_s = self._first_s or now_s
        self._last_s = now_s

    def book(self, key: str) -> None:
        """A request is answered with a value: one credit for each key, as a provider books it."""
        if key:
            self.booked.add(key)
        else:
            self.booked_without_key += 1

    def leave(self, status: int) -> None:
        """A request got its answer, or its client went away (status 499)."""
        self.in_flight -= 1
        self.statuses[status] += 1

    def stats(self) -> dict[str, Any]:
        """Return the book as JSON. Keys that are not among the repeated ones came once."""
        repeated = self.arrived.repeated
        listed = dict(sorted(repeated.items(), key=lambda item: -item[1])[:REPEATED_LISTED_MAX])
        return {
            "calls": self.calls,
            "paths": dict(self.paths),
            "statuses": {str(status): count for status, count in self.statuses.items()},
            "rate_limited": self.statuses[429],
            "bad_requests": sum(self.statuses[status] for status in (400, 404, 405, 413, 422)),
            "failed_on_purpose": self.statuses[500],
            "booked": len(self.booked) + self.booked_without_key,
            "span_s": round(self._last_s - self._first_s, 3),
            "in_flight": self.in_flight,
            "in_flight_max": self.in_flight_max,
            "keys": len(self.arrived),
            "keys_repeated": len(repeated),
            "keys_booked_again": len(self.booked.repeated),
            "keys_untracked": self.arrived.untracked,
            "questions_repeated": self.questions.repeated,
            "questions_repeated_answered": self.questions.repeated_answered,
            "repeated": listed,
        }

    def stats_of(self, key: str) -> dict[str, Any]:
        """Return what is known of one idempotency key."""
        return {"key": key, "arrived": self.arrived.of(key), "answered": self.booked.of(key)}
