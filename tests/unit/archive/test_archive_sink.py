"""Rows that one partition wrote are corrected when another one has more of their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from shardwire.archive.sink import Sink, Totals, identity_of

SCHEMA = pa.schema(
    [
        ("entire_message_hash", pa.binary()),
        ("send_id", pa.string()),
        ("topic", pa.string()),
        ("status", pa.string()),
        ("data_segments_recovered", pa.int32()),
        ("erasure_code", pa.string()),
        ("payload_length", pa.int64()),
    ]
)


def row(
    digest: bytes, topic: str, status: str = "recovered", recovered: int = 5, code: str | None = "leopard"
) -> dict[str, Any]:
    values = digest, None, topic, status, recovered, code, 100
    return dict(zip(SCHEMA.names, values, strict=True))


@pytest.mark.parametrize("in_file", [False, True])
def test_of_one_payload_in_several_places_each_row_has_its_own_correction(tmp_path: Path, in_file: bool) -> None:
    totals, path = Totals(), tmp_path / "part.parquet" if in_file else None
    sink = Sink(SCHEMA, ["topic"], totals, path)
    digest, other = b"a" * 32, b"b" * 32
    rows = [row(digest, topic) for topic in "wxyz"] + [row(other, "w")]
    sink.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
    sink.close()
    # How many data segments nobody has; None where another partition has the message.
    sink.correct(
        {identity_of(digest, None, [topic]): (digest, lost) for topic, lost in [("x", 0), ("y", 2), ("z", None)]}
    )
    expected = [
        row(digest, "w"),
        row(digest, "x", "complete", 0, None),
        row(digest, "y", "recovered", 2),
        row(other, "w"),
    ]
    table = pa.Table.from_batches(sink.batches(), SCHEMA) if path is None else pa.parquet.read_table(path)
    assert table.to_pylist() == expected
    assert (totals.by_status(), totals.payload_bytes) == ({"complete": 1, "recovered": 3}, 400)
