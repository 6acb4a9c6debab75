"""What crosses between Python and Java: small batches, and columns in which something stands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from spark.rows import CONFIG

from shardwire.archive.arrow import ERROR, HASH, PAYLOAD, SEND_ID, SENDER, TIMESTAMP
from shardwire.spark.arrow_calls import OUTPUT_BATCH_BYTES, _run, parts
from shardwire.spark.reconstruct import absent_columns, unwrapped_segments, wire_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("row_bytes", [1, 1_000, 300_000, OUTPUT_BATCH_BYTES, 3 * OUTPUT_BATCH_BYTES])
def test_batches_leave_in_parts_that_java_reads_fast(row_bytes: int) -> None:
    rows = min(10_000, 9 * OUTPUT_BATCH_BYTES // row_bytes)
    given = [
        pa.RecordBatch.from_pydict(
            {"n": list(range(rows)), "payload": pa.array([os.urandom(row_bytes)] * rows, pa.binary())}
        )
    ]
    left = list(_run(lambda batches: batches, iter(given)))
    assert pa.Table.from_batches(left) == pa.Table.from_batches(given)
    # About: rows differ, and one row is never cut.
    assert all(batch.num_rows == 1 or batch.nbytes < 1.1 * OUTPUT_BATCH_BYTES for batch in left)
    assert all(batch.nbytes > OUTPUT_BATCH_BYTES / 2 for batch in left[:-1])


def test_parts_of_nothing_and_of_a_slice() -> None:
    nothing = pa.RecordBatch.from_pydict({"payload": pa.array([], pa.binary())})
    assert list(parts(nothing, 100)) == [nothing]
    batch = pa.RecordBatch.from_pydict({"payload": [bytes([row]) * 60 for row in range(10)]}).slice(3, 4)
    found = list(parts(batch, 130))
    assert [part.num_rows for part in found] == [2, 2]
    assert pa.Table.from_batches(found) == pa.Table.from_batches([batch])


def test_columns_in_which_nothing_stands_do_not_cross(spark: SparkSession) -> None:
    df = spark.createDataFrame([], "payload binary")
    assert wire_messages(df, "payload", [], None, None).columns == [PAYLOAD]
    absent = absent_columns(df, (), None, None, is_keyed=False)
    assert absent == {SEND_ID, TIMESTAMP, SENDER}
    assert unwrapped_segments(df, CONFIG, "payload", [], (), None, None, absent).columns == [HASH, PAYLOAD, ERROR]
    timed = spark.createDataFrame([], "payload binary, timestamp bigint, peer string")
    assert wire_messages(timed, "payload", [], None, "peer").columns == [PAYLOAD, TIMESTAMP, SENDER]
