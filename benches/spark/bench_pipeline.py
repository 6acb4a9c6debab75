"""The Spark pipeline beside Spark's own plans over the same files, interleaved; prints medians and ratios.

    .venv/bin/python benches/spark/bench_pipeline.py [--scale 0.1] [--rounds 5] [--cores 2]

big: 10,240 segments of 100 KB in 1,024 messages (1 GB). small: 300,000 segments of 1 KB in 30,000 messages. `i2` is the
floor: a shuffle by hash and one way into Python, where nothing is done.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from shardwire import SegmentationConfig, keccak256
from shardwire.segmentation import segment
from shardwire.spark import functions as sw
from shardwire.spark import reconstruct, with_keccak256
from shardwire.spark.java import ensure_java
from shardwire.spark.reconstruct import HASH, PAYLOAD, SEND_ID, keyed_segments, unwrapped_segments
from shardwire.spark.session import ARROW_BATCH_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_MESSAGE = 10
SHAPES = {"big": (102_400, 1_024), "small": (1_024, 30_000)}


def write_segments(path: Path, segment_size_bytes: int, messages: int) -> SegmentationConfig:
    """Parquet files of shuffled segments with their hash."""
    config = SegmentationConfig(segment_size_bytes=segment_size_bytes)
    chance = random.Random(1)
    schema = pa.schema({"digest": pa.binary(), "payload": pa.binary()})
    path.mkdir(parents=True)
    files = 8
    writers = [pq.ParquetWriter(path / f"{n}.parquet", schema, compression="none") for n in range(files)]
    pending: list[list[dict[str, bytes]]] = [[] for _ in range(files)]
    for _ in range(messages):
        payload = chance.randbytes(segment_size_bytes * ROWS_PER_MESSAGE)
        digest = keccak256(payload)
        for part in segment(payload, config):
            file = chance.randrange(files)
            pending[file].append({"digest": digest, "payload": part})
            if len(pending[file]) * segment_size_bytes >= 8 << 20:
                writers[file].write_table(pa.Table.from_pylist(pending[file], schema))
                pending[file] = []
    for rows, writer in zip(pending, writers, strict=True):
        writer.write_table(pa.Table.from_pylist(rows, schema))
        writer.close()
    return config


def seconds(run: Callable[[], DataFrame]) -> float:
    """How long a plan takes from end to end; its rows go nowhere."""
    started = time.perf_counter()
    run().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes everything in and gives back a count."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows])})


def plans(df: DataFrame, config: SegmentationConfig) -> dict[str, Callable[[], DataFrame]]:
    """What is compared, by name; the first of each group is what the others are divided by."""

    def keyed() -> DataFrame:
        return keyed_segments(df, "digest", "payload", [], None, None)

    def sorted_together() -> DataFrame:
        return keyed().repartition(HASH, SEND_ID).sortWithinPartitions(HASH, SEND_ID)

    return {
        "i2": lambda: df.repartition("digest").mapInArrow(consume, "rows bigint"),
        "no-op plan": lambda: sorted_together().mapInArrow(consume, "rows bigint"),
        "reconstruct(key=)": lambda: reconstruct(df, config, key="digest", include_payload=False),
        "reconstruct(key=), payloads": lambda: reconstruct(df, config, key="digest"),
        "reconstruct, bare": lambda: reconstruct(df, config, include_payload=False),
        "decode pass alone": lambda: unwrapped_segments(df, config, "payload", [], (), None, None).drop(PAYLOAD),
        "sha2": lambda: df.select(F.sha2("payload", 256)),
        "with_keccak256": lambda: with_keccak256(df.select("payload"), keep_column=False),
        "sw.keccak256": lambda: df.select(sw.keccak256("payload")),
    }


def compare(spark: SparkSession, shape: str, directory: Path, scale: float, rounds: int) -> None:
    """Runs every plan once a round, in turn, and prints medians."""
    segment_size_bytes, messages = SHAPES[shape]
    path = directory / shape
    config = write_segments(path, segment_size_bytes, max(8, int(messages * scale)))
    df = spark.read.parquet(str(path))
    todo = plans(df, config)
    taken: dict[str, list[float]] = {name: [] for name in todo}
    for plan in todo.values():
        seconds(plan)
    for _ in range(rounds):
        for name, plan in todo.items():
            taken[name].append(seconds(plan))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    size = max(8, int(messages * scale)) * ROWS_PER_MESSAGE * segment_size_bytes
    print(f"\n{shape}: {size / 1e6:,.0f} MB, medians of {rounds}")
    for name, median in medians.items():
        base = "sha2" if "sha2" in name or "keccak" in name else "i2"
        ratio = statistics.median(own / other for own, other in zip(taken[name], taken[base], strict=True))
        print(f"  {name:<28} {median:7.2f} s   {ratio:5.2f} x {base}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    options = parser.parse_args()
    from pyspark.sql import SparkSession

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master(f"local[{options.cores}]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BATCH_BYTES))
        .getOrCreate()
    )
    print(f"{platform.machine()}, {options.cores} cores, Spark {spark.version}")
    with tempfile.TemporaryDirectory(prefix="shardwire-bench-") as directory:
        for shape in options.shapes:
            compare(spark, shape, Path(directory), options.scale, options.rounds)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    spark.stop()
    print(f"\nlargest child process: {peak / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
