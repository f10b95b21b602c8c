"""What all contracts share: the schema version and how they meet bytes."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A record's value. `schema_version` is on the wire, in the body and in a header.

    Unknown fields of the same version are ignored, so a field may be added without a new version.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    VERSION: ClassVar[int] = 1
    TYPE: ClassVar[str]
    """CloudEvents type without the version, such as `rowmill.row.input`."""

    schema_version: int = 1


Json = Any
"""A JSON value: None, bool, int, float, str, list, dict with str keys."""
