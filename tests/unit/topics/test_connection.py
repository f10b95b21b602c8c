"""One place says how clients reach the cluster; what fails there is said in words."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiokafka import conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionRequest

from rowmill.settings import Settings
from rowmill.topics.connection import BrokerUnreachable, TlsFilesUnusable, client_options, reach
from tests.kit.broker import free_port


def test_the_embedded_broker_needs_no_security() -> None:
    options = client_options(Settings(kafka="", kafka_port=9123))
    assert options["bootstrap_servers"] == "127.0.0.1:9123"
    assert options["security_protocol"] == "PLAINTEXT"
    assert not {"ssl_context", "sasl_mechanism"} & options.keys()


def test_sasl_over_tls_verifies_the_broker_and_sends_the_password() -> None:
    settings = Settings(
        kafka="kafka.example:9093",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username="rows",
        kafka_sasl_password="opensesame",
    )
    options = client_options(settings)
    assert options["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    assert options["ssl_context"].check_hostname
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == (
        "rows",
        "opensesame",
    )
    assert "opensesame" not in repr(settings)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    settings = Settings(kafka="a:1", kafka_security_protocol="SSL", kafka_ssl_ca_file=path)
    with pytest.raises(TlsFilesUnusable, match=f"ROWMILL_KAFKA_SSL_CA_FILE={path}"):
        client_options(settings)


async def test_each_address_says_why_it_failed() -> None:
    port = free_port()
    settings = Settings(kafka=f"127.0.0.1:{port},no-such-host.invalid:9092")
    with pytest.raises(BrokerUnreachable) as caught:
        await reach(settings)
    assert f"127.0.0.1:{port}: refused" in str(caught.value)
    assert "no-such-host.invalid:9092: unknown host" in str(caught.value)
    assert caught.value.exit_code == 3


async def test_a_broker_that_is_not_started_names_the_command() -> None:
    with pytest.raises(BrokerUnreachable, match="rowmill kafka start"):
        await reach(Settings(kafka="", kafka_port=free_port()))


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_request_right_after_a_reset_is_a_lost_connection_on_every_loop(make_loop: Any) -> None:
    # asyncio's own loop drops the bytes, and aiokafka's reader notices the end.
    lost = pytest.raises((KafkaConnectionError, TimeoutError))
    with asyncio.Runner(loop_factory=make_loop) as runner, lost:
        runner.run(_ask_after_a_reset())


async def _ask_after_a_reset() -> None:
    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = conn.AIOKafkaConnection("127.0.0.1", port)
    connection._reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection._writer = writer
    connection._read_task = asyncio.create_task(asyncio.sleep(60))
    writer.transport.abort()
    for _ in range(2):
        await asyncio.sleep(0)  # the transport is closed then, and the reader has not noticed
    try:
        await asyncio.wait_for(connection.send(ApiVersionRequest()), 0.2)
    finally:
        connection.close()
        server.close()
