"""What all contracts share: the schema version, how they meet bytes, and what a field may hold.

A field that any client can write is bounded here, so that whoever takes a record in can also write it
on: into a key of a table, a header, an SQL column, a sum of milliseconds.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from rowmill.plays.specs import SECONDS_MAX

INT64_MAX = (1 << 63) - 1
"""What Kafka's offsets, SQLite's and PostgreSQL's integers hold."""

KEY_CHARS_MAX = 256
"""Ids are digests of 32 characters and run ids of 64; this leaves room for other clients' own."""

Number = Annotated[int, Field(ge=-1, le=INT64_MAX)]
Count = Annotated[int, Field(ge=0, le=INT64_MAX)]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX)]
Money = Annotated[float, Field(ge=0)]

KEY_PATTERN = r"^[A-Za-z0-9][^\x00-\x1f\x7f]*$"
Key = Annotated[str, Field(max_length=KEY_CHARS_MAX, pattern=KEY_PATTERN)]
"""An id that stands in keys of tables and records: `!` and `~` begin the tables' own keys."""

RowKey = Annotated[str, Field(max_length=KEY_CHARS_MAX, pattern=r"^[A-Za-z0-9][^\x00-\x1f\x7f/]*$")]
"""A run or row id. It stands before or after a `/` in the keys of the table `rows`."""


class Contract(BaseModel):
    """A record's value. `schema_version` is on the wire, in the body and in a header.

    Unknown fields of the same version are ignored, so a field may be added without a new version.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    VERSION: ClassVar[int] = 1
    TYPE: ClassVar[str]
    """CloudEvents type without the version, such as `rowmill.row.input`."""

    schema_version: int = 1


Json = Any
"""A JSON value: None, bool, int, float, str, list, dict with str keys."""
