"""A driver that reconstructs a stream of Kafka's shape and is killed on the way: directory as the only argument."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

KAFKA_SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def start(spark: SparkSession, directory: Path) -> StreamingQuery:
    """Starts the query, or goes on with it; it ends when all files that are there were read."""
    from spark.rows import CONFIG

    from shardwire.spark import reconstruct_stream

    records = spark.readStream.schema(KAFKA_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory / "in"))
    messages = reconstruct_stream(records, CONFIG, payload="value", by=["topic"])
    return (
        messages.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"), format="parquet", outputMode="append")
    )


def main() -> None:
    from pyspark.sql import SparkSession

    from shardwire.spark.java import ensure_java

    ensure_java()
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    start(builder.getOrCreate(), Path(sys.argv[1])).awaitTermination()


if __name__ == "__main__":
    main()
