"""One place says how clients reach the cluster; what fails there is said in words."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

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
