"""The HTTP adapter and certificates."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from rowmill.plays.specs import ProviderSpec, ToolSpec
from rowmill.streams.adapters.http import HttpProvider
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.streams.core.outcomes import Answered, FailureKind, Outcome, Refused
from rowmill.streams.ports import Send
from tests.kit.raw_server import RawServer, answer

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs the openssl command to make certificates"
)


def certificate(folder: Path, days: int, name: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """Return a self-signed certificate for `name` and its key; it ends in `days` days."""
    cert, key, asked, extra = (folder / name for name in ("cert.pem", "key.pem", "asked", "extra"))
    extra.write_text(f"subjectAltName={name}\n", encoding="utf-8")
    request: list[str | Path] = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=provider"]
    sign: list[str | Path] = [
        "x509",
        "-req",
        "-signkey",
        key,
        "-days",
        str(days),
        "-extfile",
        extra,
    ]
    for command in ([*request, "-keyout", key, "-out", asked], [*sign, "-in", asked, "-out", cert]):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return cert, key


async def call(
    folder: Path, *, days: int, name: str = "IP:127.0.0.1", trusted: bool = True
) -> Outcome:
    cert, key = certificate(folder, days, name)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(cert, key)
    tls = ssl.create_default_context(cafile=str(cert)) if trusted else None
    http_provider = HttpProvider(EnvironmentSecrets({}), tls=tls)
    try:
        async with RawServer([answer(200, b'{"a":1}')], tls=server_side) as server:
            provider = ProviderSpec(id="registry", base_url=server.url)
            tool = ToolSpec(id="registry.profile", provider="registry", path="/company")
            found = await http_provider.call(Send(provider, tool, {}, "k", 10, 1_000))
            assert len(server.requests) == (1 if isinstance(found, Answered) else 0)
            return found
    finally:
        await http_provider.close()


async def test_a_trusted_certificate_is_accepted(tmp_path: Path) -> None:
    found = await call(tmp_path, days=2)
    assert isinstance(found, Answered)
    assert found.output == {"a": 1}


@pytest.mark.parametrize(
    ("days", "name", "trusted", "reason"),
    [
        (-1, "IP:127.0.0.1", True, "certificate has expired"),
        (2, "DNS:other.test", True, "certificate is not valid for '127.0.0.1'"),
        (2, "IP:127.0.0.1", False, "self-signed certificate"),
    ],
)
async def test_a_certificate_that_is_not_good_is_unreachable_and_says_why(
    tmp_path: Path, days: int, name: str, trusted: bool, reason: str
) -> None:
    """Case F38: nothing was sent, no secret left, and the row reads why, not "not found"."""
    found = await call(tmp_path, days=days, name=name, trusted=trusted)
    assert isinstance(found, Refused)
    assert (found.kind, found.maybe_booked) == (FailureKind.UNREACHABLE, False)
    assert not found.reached
    assert "is unreachable: TLS: " in found.message
    assert reason in found.message.replace("self signed", "self-signed")
