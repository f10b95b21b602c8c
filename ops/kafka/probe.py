"""Ask a port whether a Kafka broker answers there, and of which cluster it is.

An open port proves nothing: Kafka opens it before it serves, and others may listen there.
"""

from __future__ import annotations

import socket
import struct

_METADATA = 3
_VERSION = 2
"""Version 2 of Metadata: the first that carries the cluster id. Source: Kafka protocol guide."""

_ANSWER_BYTES_MAX = 1 << 20


def cluster_id(port: int, timeout_s: float = 1.0) -> str | None:
    """Return the id of the cluster whose broker serves 127.0.0.1:`port`, None if none does."""
    request = struct.pack(">hhih", _METADATA, _VERSION, 1, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 8 <= size <= _ANSWER_BYTES_MAX:
                return None
            return _cluster_in(_exactly(connection, size))
    except (OSError, struct.error, UnicodeDecodeError, EOFError):
        return None


def _cluster_in(answer: bytes) -> str | None:
    """Read brokers and cluster id of a Metadata answer; None while no broker serves."""
    brokers, at = struct.unpack_from(">i", answer, 4)[0], 8
    for _ in range(brokers):
        at += 4  # node id
        _, at = _string(answer, at)  # host
        at += 4  # port
        _, at = _string(answer, at)  # rack
    found, _ = _string(answer, at)
    return found if brokers > 0 else None


def _string(answer: bytes, at: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", answer, at)
    at += 2
    if size < 0:
        return None, at
    return answer[at : at + size].decode(), at + size


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError("the connection ended inside an answer")
        parts += part
    return bytes(parts)
