"""A secret that data, plays and providers try to smuggle out ends in no topic, store, sheet or log."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rowmill.ops.supervisor import control, spawn
from rowmill.settings import Settings
from rowmill.streams.adapters.log_reader import LogReader, LogRecord
from rowmill.streams.adapters.secrets import EnvironmentSecrets
from rowmill.topics.catalogue import CATALOGUE, CHANGELOGS
from tests.kit.broker import SessionBroker, fresh_settings

pytestmark = pytest.mark.broker

SECRET = "canary/s3cret+v4lue-of-the-test"
SHOWN = {
    "plain": SECRET,
    "base64": base64.b64encode(b"user:" + SECRET.encode()).decode(),
    "url": quote(SECRET, safe=""),
}

PLAY = """\
import os
from rowmill import Dataset, Params, Provider, Tool, bearer, col


class Options(Params):
    base_url: str = "http://127.0.0.1:1"
    note: str = ""


echo = Provider("echo", base_url=Options.base_url, auth=bearer("CANARY"))
tool = Tool("echo.it", echo, post="/echo")
SECRET = os.environ.get("ROWMILL_SECRET_CANARY", "")


async def ask(row, ctx):
    how = row["how"]
    ctx.log.info("asks", secret=SECRET)
    return await ctx.tools.execute(tool, {"how": how, "leak": SECRET if how == "input" else ""})


def compute(row):
    if row["how"] == "error":
        raise RuntimeError(f"failed with {SECRET}")
    return SECRET if row["how"] == "cell" else "fine"


rows = (
    Dataset("leads", key="how")
    .with_column("asked", ask)
    .with_column("computed", compute)
)
"""


class Echo(BaseHTTPRequestHandler):
    """A provider that gives back the token it was called with, in many ways."""

    def do_POST(self) -> None:
        how = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["how"]
        token = self.headers["Authorization"].removeprefix("Bearer ")
        assert token == SECRET
        body: Any = {"how": how}
        if how in SHOWN:
            body["echo"] = SHOWN[how]
        status = 422 if how == "refusal" else 200
        if how == "refusal":
            body = {"error": f"bad token {token}"}
        plain = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(plain)))
        self.end_headers()
        self.wfile.write(plain)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def settings(
    broker: SessionBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    monkeypatch.setenv("ROWMILL_SECRET_CANARY", SECRET)
    (tmp_path / "play.py").write_text(PLAY)
    found = fresh_settings(broker, tmp_path / "home")
    with control.ensure(found, [tmp_path]):
        yield found


def run(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rowmill", "run", "play.py", "--json", *arguments],
        env=spawn.environment(settings),
        capture_output=True,
        text=True,
        timeout=240,
        cwd=settings.home.parent,
        check=False,
    )


async def records(settings: Settings) -> dict[str, list[LogRecord]]:
    """Return everything in every topic of this mill."""
    found: dict[str, list[LogRecord]] = {}
    for topic in (*CATALOGUE, *CHANGELOGS):
        kept = found[topic.name] = []
        reader = LogReader(settings, topic, kept.append)
        await reader.start()
        await reader.caught_up()
        await reader.stop()
    return found


@pytest.mark.behaviour("R10")
def test_no_secret_gets_out_by_any_door(settings: Settings, provider: str) -> None:
    doors = ["fine", *SHOWN, "refusal", "input", "cell", "error"]
    lines = [f"{how},x" for how in doors] + [f"note-{how},{text}" for how, text in SHOWN.items()]
    (settings.home.parent / "leads.csv").write_text("\n".join(["how,note", *lines]) + "\n")
    base_url = f"base_url={provider}"

    refused = run(
        settings, "--input", "leads.csv", "--param", base_url, "--param", f"note={SECRET}"
    )
    assert refused.returncode == 2, refused.stderr
    assert "carries the secret CANARY" in refused.stderr

    ended = run(settings, "--input", "leads.csv", "--param", base_url, "--run-id", "leaky")
    assert ended.returncode == 1, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["total"], report["completed"], report["failed"]) == (11, 1, 10)
    reasons = " ".join(failure["error"] for failure in report["failures"])
    assert "CANARY" in reasons
    assert 'dataset("leads")' in reasons

    secrets = EnvironmentSecrets({"ROWMILL_SECRET_CANARY": SECRET})
    written = asyncio.run(records(settings))
    assert len(written["rows.completed"]) == 11
    for name, found in written.items():
        for record in found:
            tainted = (record.value or b"") + record.key.encode() + repr(record.headers).encode()
            assert secrets.found_in(tainted) is None, f"{name}: {record.key}"
    for path in (path for path in settings.home.rglob("*") if path.is_file()):
        assert secrets.found_in(path.read_bytes()) is None, path
    for text in (refused.stderr, ended.stderr, ended.stdout):
        assert secrets.found_in(text.encode()) is None
