"""The settings: flag > `ROWMILL_*` > `./rowmill.toml` > user file > default. Units stand in the names."""

from __future__ import annotations

import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import Field, SecretStr
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from rowmill.errors import UsageError

RECORD_BYTES_MAX = 900 << 10
"""Bytes of one value in a record: with key, headers and batch it stays under Kafka's 1 MB."""

Whole = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
"""From 1 to what Kafka's protocol carries of a number of bytes or milliseconds."""

Seconds = Annotated[float, Field(ge=0.001, le=2_000_000)]
"""From a millisecond to what Kafka's protocol carries of them, 23 days."""


class SettingsUnreadable(UsageError):
    """A settings file can't be read. Nothing was called."""


class Settings(BaseSettings):
    """What one process of Rowmill runs with. Frozen: pass it on, never change it."""

    model_config = SettingsConfigDict(
        env_prefix="ROWMILL_",
        frozen=True,
        extra="ignore",
        toml_file=[Path(platformdirs.user_config_dir("rowmill")) / "rowmill.toml", "rowmill.toml"],
    )

    home: Path = Field(
        default_factory=lambda: Path(platformdirs.user_state_dir("rowmill")),
        description="State directory: broker data, worker stores, logs, sheets.",
    )
    organisation: str = Field("default", description="Part of every receipt key (R1).")

    kafka: str = Field(
        "", description="host:port[,host:port] of an existing cluster; empty: the embedded broker."
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    kafka_sasl_username: str = ""
    kafka_sasl_password: SecretStr = SecretStr("")
    kafka_ssl_ca_file: Path | None = None
    kafka_ssl_cert_file: Path | None = None
    kafka_ssl_key_file: Path | None = None
    kafka_port: Whole = Field(
        9092, le=65_535, description="Port of the embedded broker on 127.0.0.1."
    )
    kafka_heap_mb: Whole = Field(256, description="Java heap of the embedded broker, MiB.")

    topic_prefix: str = Field("", description="Put before every topic and consumer group name.")
    standbys: int = Field(
        0,
        ge=0,
        le=100,
        description="Copies of each table partition kept by other workers, for a quick takeover.",
    )
    partitions: Whole = Field(4, le=10_000, description="Partitions of every data topic.")
    replication: Whole = Field(1, le=100, description="Replicas of every topic (3 in a cluster).")

    sheet: str = Field("", description="Sheet URL; empty: sqlite:///{home}/sheet.sqlite.")

    row_max: Whole = Field(500, description="Rows open in one rows worker, over all runs.")
    read_ahead_bytes: Whole = Field(
        32 << 20, description="Bytes of waiting input records a rows worker holds."
    )
    row_open_calls_max: Whole = Field(64, description="Open calls of one row; the next waits.")
    row_bytes_max: Whole = Field(
        RECORD_BYTES_MAX, le=RECORD_BYTES_MAX, description="Encoded size of one row, bytes."
    )
    receipt_bytes_max: Whole = Field(
        256 << 10, le=RECORD_BYTES_MAX, description="Encoded output of one call, bytes."
    )
    receipt_wait_s: Seconds = Field(
        900, description="Longest wait for another row's call in flight, unless a call says."
    )
    receipt_ttl_days: float = Field(
        0,
        ge=0,
        le=36_500,
        description="Days after which a settled receipt is deleted; 0 keeps it for ever.",
    )
    ask_again_s: Seconds = Field(15, description="A row asks again after this, doubling to 120.")

    lease_s: Seconds = Field(
        20, le=86_400, description="Seconds a lease lives without a heartbeat."
    )
    drain_s: Seconds = Field(900, description="Longest wait for open calls at a planned stop.")
    lane_concurrency: Whole = Field(
        32, description="Calls in flight that a lane begins with, where none are declared."
    )

    chunk_rows: Whole = Field(500, description="Rows of one sheet transaction.")
    chunk_bytes: Whole = Field(1 << 20, description="Bytes of one sheet transaction.")
    chunk_linger_ms: Whole = Field(250, description="Longest wait for a chunk to fill.")

    session_timeout_s: Seconds = 10
    heartbeat_s: Seconds = 3
    commit_interval_s: Seconds = 0.5
    fetch_wait_ms: Whole = Field(20, description="Longest wait of one fetch at the broker.")
    producer_linger_ms: Whole = Field(1, description="Wait for a batch of records to fill.")
    loop_lag_max_s: Seconds = Field(30, description="The watchdog ends a process past this.")

    history: Path | None = Field(
        None, description="Folder for a history of events, for fault tests; unset: none is kept."
    )
    log: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the origins: arguments, environment, then the two files."""
        try:
            files = TomlConfigSettingsSource(settings_cls)
        except (OSError, ValueError, RecursionError) as error:
            raise _unreadable(error) from error
        return init_settings, env_settings, files

    @property
    def embedded(self) -> bool:
        """True where no cluster is named and Rowmill starts its own broker."""
        return not self.kafka

    @cached_property
    def bootstrap(self) -> str:
        """`host:port[,host:port]` that clients connect to."""
        return self.kafka or f"127.0.0.1:{self.kafka_port}"

    @cached_property
    def sheet_url(self) -> str:
        """SQLAlchemy URL of the sheet."""
        return self.sheet or f"sqlite:///{self.home / 'sheet.sqlite'}"


def _unreadable(error: Exception) -> SettingsUnreadable:
    """Return what is wrong, with the name of the file: the source of the settings does not tell."""
    for path in map(Path, Settings.model_config["toml_file"]):  # type: ignore[arg-type]  # a list
        try:
            if path.is_file():
                tomllib.loads(path.read_text(encoding="utf-8"))
        except RecursionError:
            return SettingsUnreadable(f"{path} is nested too deep. Nothing was called.")
        except (OSError, ValueError) as found:
            return SettingsUnreadable(f"{path} can't be read: {found}. Nothing was called.")
    return SettingsUnreadable(f"rowmill.toml can't be read: {error}. Nothing was called.")
