"""Reconstructs messages: Parquet with a row a wire message in, Parquet with a row a message out.

spark-submit spark_jobs/reconstruct_messages.py --help
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import functions as F

from shardwire.config import SegmentationConfig
from shardwire.spark import job_session, reconstruct
from shardwire.spark.job import (
    Progress,
    add_config_arguments,
    add_unwrap_arguments,
    config_of,
    print_table,
    run_job,
    unwrap_steps_of,
)

STATUSES = ("complete", "recovered", "incomplete", "invalid")


def main(arguments: list[str] | None = None) -> int:
    """0: every message was reconstructed; 1: some are incomplete or invalid; 2: the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="reconstruct_messages.py", description=__doc__.splitlines()[0])
    parser.add_argument("input", help="Parquet files or directory")
    parser.add_argument("output", help="Parquet directory, which must not exist yet unless --overwrite is given")
    parser.add_argument("--payload", default="payload", metavar="COLUMN", help="the messages (default: %(default)s)")
    parser.add_argument("--by", nargs="*", default=[], metavar="COLUMN", help="columns that keep messages apart")
    parser.add_argument("--key", metavar="COLUMN", help="a column with entire_message_hash, where there is one")
    parser.add_argument("--timestamp", metavar="COLUMN", help="the times (default: timestamp, if it is there)")
    parser.add_argument("--sender", metavar="COLUMN", help="who sent each message (default: what SDS messages say)")
    parser.add_argument("--lengths-only", action="store_true", help="write the lengths of the payloads alone")
    parser.add_argument("--overwrite", action="store_true", help="replace the output")
    add_unwrap_arguments(parser, ("waku", "decrypt", "sds", "sds-nim"))
    add_config_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: reconstruct_messages(options, config_of(options)))


def reconstruct_messages(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the job; returns the exit code."""
    steps = unwrap_steps_of(options)
    with job_session("shardwire reconstruct_messages") as spark, Progress(spark):
        messages = reconstruct(
            spark.read.parquet(options.input),
            config,
            payload=options.payload,
            by=options.by,
            key=options.key,
            include_payload=not options.lengths_only,
            unwrap=steps,
            timestamp=options.timestamp,
            sender=options.sender,
        )
        messages.write.mode("overwrite" if options.overwrite else "errorifexists").parquet(options.output)
        written = spark.read.parquet(options.output)
        rows = written.groupBy("status").agg(
            F.count("*").alias("messages"),
            F.coalesce(F.sum("payload_length"), F.lit(0)).alias("bytes"),
            F.coalesce(F.sum("data_segments_recovered"), F.lit(0)).alias("recovered"),
            F.sum("duplicates").alias("duplicates"),
        )
        found = {row["status"]: row for row in rows.collect()}
    counts = {f"messages {status}": found[status]["messages"] if status in found else 0 for status in STATUSES}
    totals = {
        "bytes of payloads": sum(row["bytes"] for row in found.values()),
        "data segments recovered": sum(row["recovered"] for row in found.values()),
        "duplicate segments": sum(row["duplicates"] for row in found.values()),
    }
    print_table("reconstruct_messages", counts | totals)
    return 1 if counts["messages incomplete"] or counts["messages invalid"] else 0


if __name__ == "__main__":
    sys.exit(main())
