"""Kafka's jars: pinned in `jars.lock`, fetched once with jgo, checked before every start."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from rowmill.ops.kafka.errors import JarAltered, KafkaNotFetched
from rowmill.ops.kafka.locks import exclusive

KAFKA_VERSION = "4.1.0"
LOCK_FILE = Path(__file__).with_name("jars.lock")

_FETCHES_AT_ONCE = 8
_FETCH_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file: its Maven coordinate `group:artifact:version` and its sha256 in hex."""

    coordinate: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Name as in a Maven repository, such as `kafka-clients-4.1.0.jar`."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def pinned() -> list[Jar]:
    """Return what `jars.lock` lists, in its order."""
    lines = LOCK_FILE.read_text().splitlines()
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return [Jar(coordinate, sha256) for sha256, coordinate in rows]


def cache_directory() -> Path:
    """Return where the jars are kept: the user's cache, so that all homes share one fetch."""
    return platformdirs.user_cache_path("rowmill") / f"kafka-{KAFKA_VERSION}"


def class_path(report: Callable[[str], None]) -> str:
    """Return the Java class path of the broker, fetching what is missing.

    Raises: KafkaNotFetched, JarAltered.
    """
    cache = cache_directory()
    jars = pinned()
    if missing := [jar for jar in jars if not (cache / jar.file_name).is_file()]:
        cache.mkdir(parents=True, exist_ok=True)
        with exclusive(cache / ".lock"):
            missing = [jar for jar in missing if not (cache / jar.file_name).is_file()]
            if missing:
                report(f"Fetching Apache Kafka {KAFKA_VERSION} ({len(missing)} jars), once.")
                _fetch(missing, cache)
    for jar in jars:
        _verify(jar, cache / jar.file_name)
    return ":".join(str(cache / jar.file_name) for jar in jars)


def _fetch(jars: list[Jar], cache: Path) -> None:
    """Bring `jars` into `cache`; each appears there whole and verified, or not at all."""
    # Imported late: it costs 200 ms and a machine that has the jars does not need it.
    try:
        from jgo.config import GlobalSettings
        from jgo.constants import MAVEN_CENTRAL_URL
        from jgo.maven import MavenContext
    except ImportError as error:
        reason = 'the package jgo is missing: pip install "rowmill[embedded]"'
        raise KafkaNotFetched(jars[0].file_name, reason, cache) from error
    configured = GlobalSettings.load()
    with tempfile.TemporaryDirectory(dir=cache) as staging:
        maven = MavenContext(
            repo_cache=Path(staging),
            local_repos=[configured.repo_cache],
            remote_repos={"central": MAVEN_CENTRAL_URL, **configured.repositories},
            timeout=_FETCH_TIMEOUT_S,
        )
        with ThreadPoolExecutor(_FETCHES_AT_ONCE) as pool:
            arrivals = [pool.submit(_fetch_one, maven, jar, Path(staging), cache) for jar in jars]
            try:
                for arrival in arrivals:
                    arrival.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _fetch_one(maven: Any, jar: Jar, staging: Path, cache: Path) -> None:
    group, artifact, version = jar.coordinate.split(":")
    try:
        found = maven.project(group, artifact).at_version(version).artifact().resolve()
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        raise KafkaNotFetched(jar.file_name, _first_line(error), cache) from error
    _verify(jar, found)
    whole = staging / jar.file_name
    shutil.copyfile(found, whole)
    whole.replace(cache / jar.file_name)


def _verify(jar: Jar, path: Path) -> None:
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != jar.sha256:
        raise JarAltered(jar.file_name, jar.sha256, found, path)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
