"""A client of a Spark Connect server that it starts itself; prints what each part of the package answered, as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(directory: Path) -> dict[str, Any]:
    from pyspark.sql import SparkSession
    from spark.queries import run_to_end
    from spark.rows import CONFIG, payload_of
    from store_server import StoreServer, serving

    from shardwire import ConfigError
    from shardwire.node import MessageEnvelope
    from shardwire.segmentation import segment
    from shardwire.spark import (
        channel_report,
        pandas_functions,
        reconstruct,
        reconstruct_archive,
        reconstruct_stream,
        register,
        segment_messages,
        with_keccak256,
    )
    from shardwire.spark import functions as sw
    from shardwire.spark.session import configure

    payload = payload_of(1, 5_000)
    parts = segment(payload, CONFIG)
    spark = configure(SparkSession.builder.remote("local[2]").getOrCreate())
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    register(spark)
    df = spark.createDataFrame([("t", part) for part in parts[2:]], "topic string, payload binary")
    df.createOrReplaceTempView("parts")
    answers: dict[str, Any] = {"session": type(spark).__module__}
    [message] = reconstruct(df, CONFIG, by=["topic"]).collect()
    answers["reconstruct"] = message["status"], bytes(message["payload"]) == payload
    hashed = df.select(sw.keccak256("payload").alias("a"), pandas_functions.keccak256("payload").alias("b"))
    answers["functions"] = hashed.where("a = b and length(a) = 32").count()
    answers["with_keccak256"] = with_keccak256(df).where("length(keccak256) = 32").count()
    answers["segment_messages"] = segment_messages(
        spark.createDataFrame([(payload,)], "payload binary"), CONFIG
    ).count()
    answers["channel_report"] = channel_report(df).unread.agg({"messages": "sum"}).collect()[0][0]
    answers["sql"] = spark.sql("select * from parts where decode_segment(payload).is_parity").count()
    held = [(MessageEnvelope("/rc/1/a/proto", part), (100 + n) * 1_000_000) for n, part in enumerate(parts)]
    with serving(StoreServer("logos-delivery", held)) as store:
        stored = spark.read.format("waku-store").option("url", store.url).load()
        answers["store"] = stored.where("timestamp > 103000000").count(), store.requests[-1]["startTime"]
        arriving = spark.readStream.format("waku-store").option("url", store.url).option("endTime", 200_000_000).load()
        run_to_end(reconstruct_stream(arriving, CONFIG), directory, "streamed")
        answers["stream"] = [row["status"] for row in spark.read.parquet(str(directory / "streamed")).collect()]
    try:
        reconstruct_archive(spark, df, str(directory / "out"), CONFIG)
    except ConfigError as error:
        answers["archive"] = str(error)
    spark.stop()
    return answers


if __name__ == "__main__":
    # Any free port, and none beyond this machine.
    os.environ["SPARK_TESTING"] = "1"
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
