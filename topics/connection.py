"""How a client reaches the cluster of the settings: one place for addresses, SASL and TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import conn
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import collect_hosts
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError

from rowmill.errors import InfrastructureError, UsageError
from rowmill.settings import Settings

REQUEST_TIMEOUT_MS = 15_000
"""How long a broker may take for an answer. One that stands still (a frozen machine) keeps its
connections: with aiokafka's default of 40 s its clients noticed after 80 s, although its partitions
had other leaders after 9 s (tests/faults/special/test_three_brokers.py)."""


class _Connection(conn.AIOKafkaConnection):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's connection, where uvloop too calls a lost connection by that name.

    Between a reset and its notice by aiokafka's reader, uvloop refuses to write with RuntimeError.
    aiokafka knows OSError only: a worker whose consumer, producer or heartbeat wrote just then ended
    with a traceback (seed 4 of tests/faults: resets every 2 s).
    """

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """As aiokafka's. Raises: KafkaConnectionError."""
        try:
            return super().send(request, expect_response)
        except RuntimeError as error:
            if self._writer is None or not self._writer.transport.is_closing():
                raise
            self.close(reason=conn.CloseReason.CONNECTION_BROKEN)
            where = f"{self.host}:{self.port}"
            raise KafkaConnectionError(f"Connection at {where} broken: {error}") from error


conn.AIOKafkaConnection = _Connection  # all clients get theirs from `create_conn`, in that module


class TlsFilesUnusable(UsageError):
    """A certificate or key file of the settings can't be read. Nothing was called."""

    def __init__(self, setting: str, path: object, reason: object) -> None:
        super().__init__(f"{setting}={path} can't be used: {reason}. Correct the path or the file.")


def client_options(settings: Settings) -> dict[str, Any]:
    """Return the keyword arguments of every aiokafka client: producer, consumer and admin.

    Raises: TlsFilesUnusable.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap,
        "security_protocol": settings.kafka_security_protocol,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
    }
    if settings.kafka_security_protocol in ("SSL", "SASL_SSL"):
        options["ssl_context"] = _tls(settings)
    if settings.kafka_security_protocol.startswith("SASL_"):
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism
        options["sasl_plain_username"] = settings.kafka_sasl_username
        options["sasl_plain_password"] = settings.kafka_sasl_password.get_secret_value()
    return options


def _tls(settings: Settings) -> ssl.SSLContext:
    """Return a context that verifies the broker, by the given authority or the system's."""
    authority = settings.kafka_ssl_ca_file
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise TlsFilesUnusable("ROWMILL_KAFKA_SSL_CA_FILE", authority, error) from error
    if certificate := settings.kafka_ssl_cert_file:
        try:
            context.load_cert_chain(certificate, settings.kafka_ssl_key_file)
        except (OSError, ssl.SSLError) as error:
            raise TlsFilesUnusable("ROWMILL_KAFKA_SSL_CERT_FILE", certificate, error) from error
    return context


class BrokerUnreachable(InfrastructureError):
    """No broker of the cluster answered. `reasons`: one for each address, such as `a:9092: refused`."""

    def __init__(self, settings: Settings, reasons: list[str]) -> None:
        action = (
            "Start it: rowmill kafka start."
            if settings.embedded
            else "Check ROWMILL_KAFKA and its security settings, and that the cluster is up."
        )
        super().__init__(f"Kafka does not answer ({'; '.join(reasons)}). {action}")


async def reach(settings: Settings, timeout_s: float = 5) -> None:
    """Return once one broker of the cluster has let us in; each address is tried for `timeout_s`.

    aiokafka's own clients log why an address failed and raise without the reason.
    Raises: BrokerUnreachable, TlsFilesUnusable.
    """
    options = client_options(settings)
    addresses = options.pop("bootstrap_servers")
    reasons = []
    for host, port, _ in collect_hosts(addresses):
        try:
            async with asyncio.timeout(timeout_s):
                connection = await create_conn(host, port, **options)
        except (OSError, KafkaError) as error:  # TimeoutError is an OSError
            reasons.append(f"{host}:{port}: {_reason(error, timeout_s)}")
        else:
            connection.close()
            return
    raise BrokerUnreachable(settings, reasons)


@asynccontextmanager
async def admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client, connected. Raises: BrokerUnreachable, also where the cluster goes away."""
    await reach(settings)
    client = AIOKafkaAdminClient(**client_options(settings))
    try:
        await client.start()
        yield client
    except (KafkaConnectionError, TimeoutError) as error:
        reason = f"{settings.bootstrap}: {str(error) or 'no answer in time'}"
        raise BrokerUnreachable(settings, [reason]) from error
    finally:
        await client.close()


def _reason(error: OSError | KafkaError, timeout_s: float) -> str:
    """Say in words what aiokafka, asyncio or OpenSSL raised."""
    match error:
        case TimeoutError():
            return f"no answer within {timeout_s:g} s"
        case ConnectionRefusedError():
            return "refused"
        case socket.gaierror():
            return "unknown host"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"no TLS: {error.reason or error}"
        case KafkaConnectionError():
            return "it closed the connection; does it speak ROWMILL_KAFKA_SECURITY_PROTOCOL?"
        case KafkaError():
            # `[Error 58] SaslAuthenticationFailed: Authentication failed`
            return str(error).split("] ", 1)[-1]
        case _:
            return error.strerror or str(error)
