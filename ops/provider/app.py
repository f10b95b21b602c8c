"""The practice provider as a plain ASGI application: no framework between a call and its answer.

A web framework would cost more CPU for each call than the product's own client, on the same machine,
and would so distort every measurement.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from rowmill.ops.provider import answers
from rowmill.ops.provider.book import Book, Windows
from rowmill.streams.ports import Note, silent

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = tuple[int, Any]

BODY_BYTES_MAX = 1 << 20
"""Bytes of a request's body; 50 symbols need some 600."""

_CLIENT_GONE = 499
"""nginx's word for a request whose client closed the connection before the answer."""


class BadRequest(Exception):
    """A request that can't be answered; the message is what the client reads."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the provider behaves. `limits`: (calls, per_s), admitted requests in any such stretch.
    `fail_every`: the Nth, 2Nth … admitted request answers 500 and books nothing, 0 for none."""

    latency_ms: float = 0
    limits: tuple[tuple[int, float], ...] = ()
    fail_every: int = 0
    batch_max: int = 50


class PracticeProvider:
    """The ASGI application and its book."""

    def __init__(self, behaviour: Behaviour, note: Note = silent) -> None:
        self._behaviour = behaviour
        self._note = note
        self._operations: dict[str, Callable[[dict[str, Any]], Any]] = {
            "/company": lambda question: answers.company(_text(question, "symbol")),
            "/domain": lambda question: answers.domain(_text(question, "company")),
            "/sector": lambda question: answers.sector(_text(question, "sector")),
            "/company/batch": self._companies,
        }
        limits = (f"{calls} in {per_s:g} s" for calls, per_s in behaviour.limits)
        self._limits = " and ".join(limits)
        self._reset()

    def _reset(self) -> None:
        self.book = Book()
        self._admitted = 0
        self._windows = Windows(self._behaviour.limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        operation = self._operations.get(path)
        if operation is not None:
            await self._operate(operation, scope, receive, send)
        elif path == "/stats" and scope["method"] == "GET":
            await _answer(send, 200, self._stats(scope))
        elif path == "/reset" and scope["method"] == "POST":
            self._reset()
            await _answer(send, 200, {"reset": True})
        elif path == "/mark" and scope["method"] == "POST":
            self.book.questions.mark()
            await _answer(send, 200, {"marked": True})
        else:
            known = ", ".join([*self._operations, "/stats", "/mark", "/reset"])
            await _answer(
                send, 404, _error(f"{scope['method']} {path} is not known here. Known: {known}")
            )

    async def _operate(
        self, operation: Callable[[dict[str, Any]], Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        book = self.book  # a reset while this request waits must not count it in the new book
        key = _header(scope["headers"], b"idempotency-key")
        book.arrive(scope["path"], key)
        status = _CLIENT_GONE
        headers: list[tuple[bytes, bytes]] = []
        try:
            now_s = asyncio.get_running_loop().time()
            wait_s = self._windows.wait_s(now_s)
            if wait_s:
                # Whole seconds, as RFC 9110 has them; rounded down they would ask for too early.
                headers.append((b"retry-after", b"%d" % math.ceil(wait_s)))
                answer: Answer = (
                    429,
                    _error(f"more requests than {self._limits} admit"),
                )
            else:
                book.admit(now_s)
                answer = await self._admit(operation, scope, receive, book, key)
            status, output = answer
            if status == 200:
                if not key or book.booked.of(key) == 0:
                    self._note("booked", key=key)  # once a key, as a provider charges
                book.book(key)
            await _answer(send, status, output, headers)
        finally:
            book.leave(status)
            self._note("replied", key=key, status="gone" if status == _CLIENT_GONE else status)

    async def _admit(
        self,
        operation: Callable[[dict[str, Any]], Any],
        scope: Scope,
        receive: Receive,
        book: Book,
        key: str,
    ) -> Answer:
        self._admitted += 1
        fails = self._behaviour.fail_every and self._admitted % self._behaviour.fail_every == 0
        try:
            question = await _question(scope, receive)
            content = msgspec.json.encode(question, order="deterministic")
            asked = book.questions.ask(scope["path"], content)
            if self._note is not silent:
                digest = blake2b(content, digest_size=8).hexdigest()
                self._note("arrived", key=key, tool=scope["path"], digest=digest)
            if self._behaviour.latency_ms:
                await asyncio.sleep(self._behaviour.latency_ms / 1000)
            if fails:
                return 500, _error(f"fails on purpose: request {self._admitted:,} since the start")
            output = operation(question)
            book.questions.answer(asked)
            return 200, output
        except BadRequest as error:
            return error.status, _error(str(error))

    def _companies(self, question: dict[str, Any]) -> dict[str, Any]:
        symbols = question.get("symbols")
        if not isinstance(symbols, list) or not symbols:
            raise BadRequest(422, '"symbols" must be a list of at least one symbol')
        if len(symbols) > self._behaviour.batch_max:
            raise BadRequest(
                422,
                f'"symbols" has {len(symbols):,} members, at most {self._behaviour.batch_max:,}',
            )
        return {"results": [answers.company(_text({"symbols": one}, "symbols")) for one in symbols]}

    def _stats(self, scope: Scope) -> dict[str, Any]:
        wanted = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        return self.book.stats_of(wanted["key"]) if "key" in wanted else self.book.stats()


async def _question(scope: Scope, receive: Receive) -> dict[str, Any]:
    """Return the input: the query of a GET, else the JSON body. Raises: BadRequest."""
    if scope["method"] == "GET":
        return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    if scope["method"] not in ("POST", "PUT"):
        raise BadRequest(405, f"{scope['method']} is not answered here, POST is")
    body = await _body(receive)
    try:
        question = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(422, f"the body is not JSON: {error}") from error
    if not isinstance(question, dict):
        raise BadRequest(422, f"the body must be a JSON object, not {type(question).__name__}")
    return question


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        if len(body) > BODY_BYTES_MAX:
            break
        message = await receive()
        body += message.get("body", b"")
    if len(body) > BODY_BYTES_MAX:
        raise BadRequest(413, f"the body has more than {BODY_BYTES_MAX:,} bytes")
    return body


def _text(question: dict[str, Any], name: str) -> str:
    value = question.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(422, f'"{name}" must be a text that is not empty')
    return value


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    for found, value in headers:
        if found == name:
            return value.decode("latin-1")
    return ""


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


async def _answer(
    send: Send, status: int, output: Any, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    body = msgspec.json.encode(output)
    length = (b"content-length", b"%d" % len(body))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), length, *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})
