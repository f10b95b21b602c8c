"""How every Kafka client of Rowmill connects: one reading of the settings."""

from __future__ import annotations

from typing import Any

from rowmill.settings import Settings


def connection(settings: Settings) -> dict[str, Any]:
    """Return the arguments by which aiokafka's clients connect: servers, security, SASL, TLS."""
    found: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap,
        "security_protocol": settings.kafka_security_protocol,
    }
    if settings.kafka_security_protocol.startswith("SASL_"):
        found |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_sasl_username,
            "sasl_plain_password": settings.kafka_sasl_password.get_secret_value(),
        }
    if settings.kafka_security_protocol.endswith("SSL"):
        from aiokafka.helpers import create_ssl_context

        def path(file: object) -> str | None:
            return str(file) if file else None

        found["ssl_context"] = create_ssl_context(
            cafile=path(settings.kafka_ssl_ca_file),
            certfile=path(settings.kafka_ssl_cert_file),
            keyfile=path(settings.kafka_ssl_key_file),
        )
    return found


def on_the_wire(settings: Settings, name: str) -> str:
    """Return a topic's or group's name with the cluster's prefix."""
    return f"{settings.topic_prefix}{name}"
