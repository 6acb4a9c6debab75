"""Reconstructs more bytes in one Spark task than 32-bit offsets can count, and compares every payload.

python scripts/check_spark_size.py --gib 2.25

Too much for every run of the tests: some minutes, and twice the size in temporary files.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import functions as F

from shardwire.config import SegmentationConfig
from shardwire.spark import local_cluster_session, reconstruct, segment_messages

PAYLOAD_BYTES = 24_000_000


def payloads(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A payload a row, made on the executors from its number."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            payload = pa.array([random.Random(number).randbytes(PAYLOAD_BYTES)], pa.binary())
            yield pa.RecordBatch.from_arrays([payload], names=["payload"])


def main() -> int:
    """0: every payload came back; 1: some did not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=2.25, help="bytes of payloads together (default: %(default)s)")
    options = parser.parse_args()
    count = -(-int(options.gib * (1 << 30)) // PAYLOAD_BYTES)
    config = SegmentationConfig()
    started = time.monotonic()
    # One partition after the shuffle: one task, one Arrow stream and one state machine take in all of it.
    spark = local_cluster_session("check_spark_size", conf={"spark.sql.shuffle.partitions": "1"})
    made = spark.range(0, count, 1, 4).mapInArrow(payloads, "payload binary")
    named = made.withColumn("sha256", F.sha2("payload", 256))
    segments = segment_messages(named, config)
    messages = reconstruct(segments, config, payload="segment", by=["sha256"])
    same = (F.sha2("payload", 256) == F.col("sha256")).cast("long")
    row = messages.agg(F.count("*"), F.sum(same), F.sum("payload_length"), F.countDistinct("sha256")).collect()[0]
    spark.stop()
    found, right, size, different = (int(value or 0) for value in row)
    seconds = time.monotonic() - started
    print(f"{right} of {count} payloads, {size:,} bytes in one task, {seconds:.0f} s in all")
    return 0 if (found, right, different) == (count, count, count) else 1


if __name__ == "__main__":
    sys.exit(main())
