"""Reconstructs messages: Parquet with a row a wire message in, Parquet with a row a message out.

spark-submit spark_jobs/reconstruct_messages.py --help
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import functions as F

from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError
from shardwire.spark import decrypt, job_session, reconstruct
from shardwire.spark.job import Progress, add_config_arguments, config_of, print_table, run_job
from shardwire.spark.unwrap import UnwrapStep

STATUSES = ("complete", "recovered", "incomplete", "invalid")


def main(arguments: list[str] | None = None) -> int:
    """0: every message was reconstructed; 1: some are incomplete or invalid; 2: the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="reconstruct_messages.py", description=__doc__.splitlines()[0])
    parser.add_argument("input", help="Parquet files or directory")
    parser.add_argument("output", help="Parquet directory, which must not exist yet unless --overwrite is given")
    parser.add_argument("--payload", default="payload", metavar="COLUMN", help="the messages (default: %(default)s)")
    parser.add_argument("--by", nargs="*", default=[], metavar="COLUMN", help="columns that keep messages apart")
    parser.add_argument("--key", metavar="COLUMN", help="a column with entire_message_hash, where there is one")
    parser.add_argument(
        "--unwrap",
        nargs="*",
        default=[],
        choices=("waku", "decrypt", "sds", "sds-nim"),
        help="what is around the segments, outermost first",
    )
    parser.add_argument("--key-file", metavar="PATH", help="decrypt: the key file, at this path on every executor")
    parser.add_argument("--key-env", metavar="NAME", help="decrypt: an environment variable of the executors")
    parser.add_argument("--channel-id", metavar="ID", help="decrypt: the channel that the messages belong to")
    parser.add_argument("--lengths-only", action="store_true", help="write the lengths of the payloads alone")
    parser.add_argument("--overwrite", action="store_true", help="replace the output")
    add_config_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: reconstruct_messages(options, config_of(options)))


def reconstruct_messages(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the job; returns the exit code."""
    steps = [step_of(name, options) for name in options.unwrap]
    spark = job_session("shardwire reconstruct_messages")
    with Progress(spark):
        messages = reconstruct(
            spark.read.parquet(options.input),
            config,
            payload=options.payload,
            by=options.by,
            key=options.key,
            include_payload=not options.lengths_only,
            unwrap=steps,
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


def step_of(name: str, options: argparse.Namespace) -> UnwrapStep:
    """The unwrap step that a word of --unwrap names."""
    if name != "decrypt":
        return name  # type: ignore[return-value]  # argparse admits the names of steps alone
    if (options.key_file is None) == (options.key_env is None):
        raise ConfigError("--unwrap decrypt needs either --key-file or --key-env: give one of them")
    return decrypt(key_file=options.key_file, key_env=options.key_env, channel_id=options.channel_id)


if __name__ == "__main__":
    sys.exit(main())
