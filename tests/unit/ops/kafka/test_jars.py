"""Kafka's jars are fetched once, and only the pinned bytes are ever run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rowmill.ops.kafka import jars
from rowmill.ops.kafka.errors import JarAltered, KafkaNotFetched
from rowmill.ops.kafka.jars import Jar, class_path, pinned
from tests.kit.broker import free_port

CONTENT = b"the pinned bytes"
ONE = Jar("org.example:one:1.0", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, one pinned jar, an unreachable Maven repository, an empty local one."""
    monkeypatch.setattr(jars, "cache_directory", lambda: tmp_path / "cache")
    monkeypatch.setattr(jars, "pinned", lambda: [ONE])
    config = tmp_path / "jgo.conf"
    address = f"http://127.0.0.1:{free_port()}/maven2"
    config.write_text(
        f"[settings]\nrepo_cache = {tmp_path / 'm2'}\n[repositories]\ncentral = {address}\n"
    )
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    monkeypatch.delenv("M2_REPO", raising=False)
    return tmp_path / "cache"


def put_into_local_repository(cache: Path, content: bytes) -> None:
    """Place the jar where Maven, had it run on this machine, would have put it."""
    place = cache.parent / "m2" / "org" / "example" / "one" / "1.0" / ONE.file_name
    place.parent.mkdir(parents=True)
    place.write_bytes(content)


def no_report(line: str) -> None:
    """Take a sentence and drop it."""


def test_no_network_at_the_first_fetch_is_explained(cache: Path) -> None:
    with pytest.raises(KafkaNotFetched, match=r"one-1\.0\.jar.*Check the network") as caught:
        class_path(no_report)
    assert caught.value.exit_code == 3
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_jars_of_a_local_maven_repository_are_used(cache: Path) -> None:
    put_into_local_repository(cache, CONTENT)
    told: list[str] = []
    assert class_path(told.append) == str(cache / "one-1.0.jar")
    assert told == ["Fetching Apache Kafka 4.1.0 (1 jars), once."]


def test_a_fetched_jar_is_not_fetched_again(cache: Path) -> None:
    put_into_local_repository(cache, CONTENT)
    class_path(no_report)
    told: list[str] = []
    class_path(told.append)
    assert told == []


def test_another_file_than_the_pinned_one_never_reaches_the_cache(cache: Path) -> None:
    put_into_local_repository(cache, b"altered")
    with pytest.raises(JarAltered, match="It was not run"):
        class_path(no_report)
    assert not (cache / ONE.file_name).exists()


def test_a_jar_altered_in_the_cache_is_refused(cache: Path) -> None:
    cache.mkdir()
    (cache / ONE.file_name).write_bytes(b"altered later")
    with pytest.raises(JarAltered, match=str(cache)):
        class_path(no_report)


def test_kafka_itself_and_all_it_needs_are_pinned_by_sha256() -> None:
    found = pinned()
    assert "org.apache.kafka:kafka_2.13:4.1.0" in {jar.coordinate for jar in found}
    assert len({jar.file_name for jar in found}) == len(found) == 46
    assert all(len(jar.sha256) == 64 for jar in found)
