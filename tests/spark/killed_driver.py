"""A driver that reconstructs a stream of Kafka's shape and is killed on the way: directory as the only argument.

A task kills it, with its Java, half way through a micro-batch.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

KAFKA_SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def kill_group(leader: int, after: Path) -> Step:
    """Once the file `after` is there, kills the leader's whole process group, with half of a task's rows handed on."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if after.exists():
                os.killpg(leader, signal.SIGKILL)
            yield batch.slice(batch.num_rows // 2)

    return step


def start(spark: SparkSession, directory: Path, step: Step | None = None) -> StreamingQuery:
    """Starts the query, or goes on with it; it ends when all files that are there were read."""
    from spark.rows import CONFIG

    from shardwire.spark import reconstruct_stream

    records = spark.readStream.schema(KAFKA_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory / "in"))
    messages = reconstruct_stream(records, CONFIG, payload="value", by=["topic"])
    if step is not None:
        messages = messages.mapInArrow(step, messages.schema)
    return (
        messages.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"), format="parquet", outputMode="append")
    )


def main() -> None:
    from pyspark.sql import SparkSession
    from spark.queries import until_ended

    from shardwire.spark.java import ensure_java

    ensure_java()
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    directory = Path(sys.argv[1])
    step = kill_group(os.getpid(), directory / "checkpoint" / "commits" / "2")
    spark = builder.getOrCreate()
    until_ended(lambda: start(spark, directory, step))


if __name__ == "__main__":
    main()
