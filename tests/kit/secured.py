"""A broker with SASL over TLS and access rules, as an organisation's cluster has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import trustme
from cryptography.hazmat.primitives import serialization

from rowmill.ops.kafka import embedded, layout
from rowmill.settings import Settings
from tests.kit.broker import OwnBroker, free_port

PASSWORDS = {"operator": "may-do-all", "worker": "may-do-nothing"}
"""Users of the secured listener: one superuser, one without any right."""


class SecuredBroker(OwnBroker):
    """An own broker with a second listener, `secured`, that asks for a certificate and a user."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.authority = home.parent / "authority.pem"
        self._keys = home.parent / "broker.pem"
        self._port = free_port()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        issued = authority.issue_cert("127.0.0.1")
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
        # Java reads keys as PKCS 8 only.
        pkcs8 = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        self._keys.write_bytes(pkcs8 + chain)

    def start(self) -> embedded.Broker:
        """Start it with both listeners."""
        plain = layout.properties

        def secured(data: Path, port: int, controller_port: int) -> str:
            return plain(data, port, controller_port) + self._more(port, controller_port)

        with patch.object(embedded, "properties", secured):
            return super().start()

    def settings_of(self, user: str, **changed: Any) -> Settings:
        """Return the settings of a mill whose user is `user`."""
        wanted: dict[str, Any] = {
            "kafka": f"127.0.0.1:{self._port}",
            "kafka_security_protocol": "SASL_SSL",
            "kafka_sasl_mechanism": "PLAIN",
            "kafka_sasl_username": user,
            "kafka_sasl_password": PASSWORDS[user],
            "kafka_ssl_ca_file": self.authority,
        }
        return Settings(**(wanted | changed))

    def _more(self, port: int, controller_port: int) -> str:
        listeners = f"BROKER://127.0.0.1:{port},SECURED://127.0.0.1:{self._port}"
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        config = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": (
                "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": f"{module} required {users};",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keys,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:operator",
        }
        return "".join(f"{key}={value}\n" for key, value in config.items())
