"""`rows.completed` in: values stay JSON text, so the sheet gets every digit that was sent.

The contract (`RowCompleted`) is what a record must be; this reads the same fields, without making
Python numbers of its values, at a fifth of the CPU. Where it can't, the contract's own decoder says
why, in the words that all topics share.
"""

from __future__ import annotations

import msgspec

from rowmill.streams.core.nesting import may_be_deeper
from rowmill.streams.core.row_writes import RowWrite
from rowmill.topics import codec
from rowmill.topics.contracts import RowCompleted

_decode = msgspec.json.Decoder(RowWrite).decode


def decode_write(value: bytes | None) -> RowWrite:
    """Return the row or patch in a record. Raises: codec.UndecodableRecord, with the reason."""
    if may_be_deeper(value or b"", codec.DEPTH_MAX):
        codec.decode(RowCompleted, value)
    try:
        write = _decode(value or b"")
    except (ValueError, msgspec.MsgspecError) as error:
        codec.decode(RowCompleted, value)
        raise codec.UndecodableRecord(f"not a {RowCompleted.TYPE}: {error}") from error
    if not 1 <= write.schema_version <= RowCompleted.VERSION:
        codec.decode(RowCompleted, value)
    if write.is_patch == (write.status is not None):
        wrong = "a patch has no status" if write.is_patch else "a finished row has a status"
        raise codec.UndecodableRecord(f"not a {RowCompleted.TYPE}: status: {wrong}")
    return write
