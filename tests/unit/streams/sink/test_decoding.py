"""What the sink reads is the contract, field for field."""

from __future__ import annotations

import msgspec
import pytest

from rowmill.streams.core.row_writes import CellWrite, RowWrite
from rowmill.streams.sink.decoding import decode_write
from rowmill.topics import codec
from rowmill.topics.contracts import Cell, RowCompleted


def completed(**fields: object) -> RowCompleted:
    plain: dict[str, object] = {
        "run": "r", "run_number": 7, "life": 2, "epoch": 3, "dataset": "leads", "row": "id",
        "index": 4, "status": "completed", "values": {"k": "é", "n": 1.5},
        "cells": {"v": Cell(status="completed", value={"a": [1]}, provider="p", reused=True)},
    }  # fmt: skip
    return RowCompleted.model_validate({**plain, **fields})


@pytest.mark.parametrize(("write", "contract"), [(RowWrite, RowCompleted), (CellWrite, Cell)])
def test_the_fields_are_the_contracts(
    write: type[msgspec.Struct], contract: type[RowCompleted | Cell]
) -> None:
    assert set(write.__struct_fields__) == set(contract.model_fields)


def test_a_record_reads_as_the_contract_wrote_it() -> None:
    record = completed(error="no", failed_column="v", status="failed")
    write = decode_write(codec.encode(record))
    assert RowCompleted.model_validate_json(msgspec.json.encode(write)) == record


def test_digits_stay_as_they_were_sent() -> None:
    text = codec.encode(completed()).replace(b"1.5", b"1.500000000000000000001")
    assert bytes(decode_write(text).values["n"]) == b"1.500000000000000000001"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the record has no value"),
        (b"{", "not JSON"),
        (b"[]", "expected a JSON object"),
        (b"{}", "not a rowmill.row.completed: run"),
        (codec.encode(completed()).replace(b'"index":4', b'"index":"four"'), "index"),
        (b'{"schema_version":9}', "schema version 9 of rowmill.row.completed; this worker reads"),
        (
            codec.encode(completed()).replace(b'"schema_version":1', b'"schema_version":2'),
            "schema version 2",
        ),
        (codec.encode(completed(status=None)), "a finished row has a status"),
        (codec.encode(completed(kind="patch")), "a patch has no status"),
    ],
)
def test_what_is_no_row_says_why(value: bytes | None, reason: str) -> None:
    with pytest.raises(codec.UndecodableRecord, match=reason):
        decode_write(value)
