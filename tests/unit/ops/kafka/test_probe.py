"""A port counts as a broker only if it answers as one."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from rowmill.ops.kafka.probe import cluster_id
from tests.kit.broker import free_port


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def metadata(brokers: int) -> bytes:
    """Return a Metadata answer, version 2, of the cluster `ours`."""
    broker = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">ih", 9092, -1)
    body = struct.pack(">ii", 1, brokers) + broker * brokers + text("ours")
    body += struct.pack(">ii", 1, 0)
    return struct.pack(">i", len(body)) + body


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Serve one connection: read a request, send `answer`, close."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_a_serving_broker_names_its_cluster() -> None:
    with answering(metadata(brokers=1)) as port:
        assert cluster_id(port) == "ours"


@pytest.mark.parametrize(
    "answer",
    [
        metadata(brokers=0),
        metadata(brokers=1)[:20],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x7f\xff\xff\xff" * 4,
        b"",
    ],
    ids=["no broker yet", "cut off", "HTTP", "absurd size", "closed"],
)
def test_what_is_no_serving_broker_is_none(answer: bytes) -> None:
    with answering(answer) as port:
        assert cluster_id(port) is None


def test_a_port_that_nobody_listens_on_is_none() -> None:
    assert cluster_id(free_port()) is None
