"""Segments payloads: Parquet with a column of payloads in, Parquet with a row a segment out.

spark-submit spark_jobs/segment_messages.py --help
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import functions as F

from shardwire.config import SegmentationConfig
from shardwire.errors import ShardwireError
from shardwire.spark import job_session, segment_messages
from shardwire.spark.job import Progress, add_config_arguments, config_of, print_table, run_job


def main(arguments: list[str] | None = None) -> int:
    """0: every payload was segmented; 1: some were refused, see the column error; 2: the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="segment_messages.py", description=__doc__.splitlines()[0])
    parser.add_argument("input", help="Parquet files or directory")
    parser.add_argument("output", help="Parquet directory, which must not exist yet unless --overwrite is given")
    parser.add_argument("--payload", default="payload", metavar="COLUMN", help="the payloads (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace the output")
    add_config_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: segment(options, config_of(options)))


def segment(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the job; returns the exit code."""
    with job_session("shardwire segment_messages") as spark, Progress(spark):
        messages = spark.read.parquet(options.input)
        segments = segment_messages(messages, config, payload=options.payload)
        segments.write.mode("overwrite" if options.overwrite else "errorifexists").parquet(options.output)
        written = spark.read.parquet(options.output)
        row = written.agg(
            F.countDistinct("entire_message_hash").alias("payloads"),
            F.count(F.when(~F.col("is_parity"), 1)).alias("data"),
            F.count(F.when(F.col("is_parity"), 1)).alias("parity"),
            F.coalesce(F.sum(F.length("segment")), F.lit(0)).alias("bytes"),
            F.count("error").alias("refused"),
        ).first()
    if row is None:
        raise ShardwireError("the summary of an aggregation has no row")
    print_table(
        "segment_messages",
        {
            "different payloads": row["payloads"],
            "data segments": row["data"],
            "parity segments": row["parity"],
            "bytes of segments": row["bytes"],
            "payloads refused": row["refused"],
        },
    )
    return 1 if row["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
