"""Write `jars.lock` anew, for a new Kafka version: `python -m rowmill.ops.kafka.pin`.

Resolves with jgo, so that a person reviews a change of any jar or hash as a diff.
"""

from __future__ import annotations

import hashlib

from rowmill.ops.kafka.jars import KAFKA_VERSION, LOCK_FILE

ENDPOINT = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.slf4j:slf4j-simple:1.7.36"
"""slf4j-simple: Kafka's own dependencies bind no logger; 1.7, the version of its slf4j-api."""


def main() -> None:
    """Resolve, hash and write."""
    import jgo

    rows = []
    for artifact in jgo.resolve(ENDPOINT):
        coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        rows.append((coordinate, hashlib.sha256(artifact.resolve().read_bytes()).hexdigest()))
    head = [line for line in LOCK_FILE.read_text().splitlines() if line.startswith("#")]
    body = [f"{sha256}  {coordinate}" for coordinate, sha256 in sorted(rows)]
    LOCK_FILE.write_text("\n".join(head + body) + "\n")


if __name__ == "__main__":
    main()
