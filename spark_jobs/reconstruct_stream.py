"""Reconstructs messages from a stream, into Parquet with a row a message, until it is stopped.

spark-submit spark_jobs/reconstruct_stream.py --help

SIGINT, SIGTERM or a file at --stop-file ends it between two micro-batches. Started again with the same checkpoint
it goes on; every message comes out once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError
from shardwire.spark import job_session, reconstruct_stream, register
from shardwire.spark.job import (
    add_config_arguments,
    add_unwrap_arguments,
    config_of,
    print_table,
    run_job,
    unwrap_steps_of,
)
from shardwire.spark.stream_job import follow, stop_on_signal

STATUSES = ("complete", "recovered", "incomplete", "invalid")


def main(arguments: list[str] | None = None) -> int:
    """0: every message was reconstructed; 1: some are incomplete or invalid; 2: arguments are wrong or it failed."""
    parser = argparse.ArgumentParser(prog="reconstruct_stream.py", description=__doc__.splitlines()[0])
    parser.add_argument("input", help="a directory that gets Parquet files, a store's http:// address, or kafka")
    parser.add_argument("output", help="Parquet directory; read it with Spark, which knows what was committed")
    parser.add_argument("--checkpoint", required=True, metavar="DIRECTORY", help="where the query keeps how far it is")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the source")
    parser.add_argument("--once", action="store_true", help="read what there is, then end")
    parser.add_argument("--interval-ms", type=int, default=0, help="from a micro-batch to the next (default: at once)")
    parser.add_argument("--stop-file", type=Path, metavar="PATH", help="end when this file appears")
    parser.add_argument("--payload", metavar="COLUMN", help="the messages (default: payload; value of kafka)")
    parser.add_argument(
        "--timestamp", metavar="COLUMN", help="the time of arrival (default: timestamp, if it is there)"
    )
    parser.add_argument("--by", nargs="*", default=[], metavar="COLUMN", help="columns that keep messages apart")
    parser.add_argument("--watermark-delay-ms", type=int, default=60_000, help="%(default)s")
    parser.add_argument("--remember-ms", type=int, default=3_600_000, help="%(default)s")
    parser.add_argument("--lengths-only", action="store_true", help="write the lengths of the payloads alone")
    add_unwrap_arguments(parser, ("waku", "decrypt", "sds", "sds-nim"))
    add_config_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: run(options, config_of(options)))


def run(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the query to its end; returns the exit code."""
    steps = unwrap_steps_of(options)
    given = source_options(options.option, options.input)
    if options.interval_ms < 0:
        raise ConfigError(f"--interval-ms is {options.interval_ms}: it must be at least 0")
    with stop_on_signal() as stop, job_session("shardwire reconstruct_stream") as spark:
        messages = reconstruct_stream(
            source(spark, options.input, given),
            config,
            payload=options.payload or ("value" if options.input == "kafka" else "payload"),
            by=options.by,
            include_payload=not options.lengths_only,
            unwrap=steps,
            timestamp=options.timestamp,
            watermark_delay_ms=options.watermark_delay_ms,
            remember_ms=options.remember_ms,
        )
        writer = messages.writeStream.option("checkpointLocation", options.checkpoint).outputMode("append")
        timed = (
            writer.trigger(availableNow=True)
            if options.once
            else writer.trigger(processingTime=f"{options.interval_ms} milliseconds")
        )
        totals = follow(timed.start(options.output, format="parquet"), stop, options.stop_file)
        written = spark.read.schema(messages.schema).parquet(options.output)
        rows = written.groupBy("status").agg(
            F.count("*").alias("messages"), F.coalesce(F.sum("payload_length"), F.lit(0)).alias("bytes")
        )
        found = {row["status"]: row for row in rows.collect()}
    counts = {f"messages {status}": found[status]["messages"] if status in found else 0 for status in STATUSES}
    print_table(
        "reconstruct_stream",
        {
            "micro-batches": totals.batches,
            "rows read": totals.rows_read,
            "entries of state": totals.messages_held,
            **counts,
            "bytes of payloads": sum(row["bytes"] for row in found.values()),
        },
    )
    return 1 if counts["messages incomplete"] or counts["messages invalid"] else 0


def source_options(given: list[str], name: str) -> dict[str, str]:
    """The options of the source by their names.

    Raises:
        ConfigError: One is not NAME=VALUE, or names the url that the input gives already.
    """
    named = {}
    for option in given:
        key, equals, value = option.partition("=")
        if not (key and equals):
            raise ConfigError(f"--option is {option!r}: it must be NAME=VALUE")
        if key.lower() == "url" and name.startswith(("http://", "https://")):
            raise ConfigError(f"--option is {option!r}: the input {name!r} is the url already; leave one out")
        named[key] = value
    return named


def source(spark: SparkSession, name: str, options: dict[str, str]) -> DataFrame:
    """The stream that the argument names."""
    if name.startswith(("http://", "https://")):
        register(spark)
        return spark.readStream.format("waku-store").options(url=name, **options).load()
    if name == "kafka":
        return spark.readStream.format("kafka").options(**options).load()
    # A stream of files needs their schema, which those that are there tell.
    schema = spark.read.parquet(name).schema
    return spark.readStream.schema(schema).options(**options).parquet(name)


if __name__ == "__main__":
    sys.exit(main())
