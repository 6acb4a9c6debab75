"""Segments payloads: Parquet with a column of payloads in, a row a segment out.

spark-submit spark_jobs/segment_messages.py --help
"""

from __future__ import annotations

import argparse
import sys

from shardwire.ending_signals import end_by_ctrl_c

if __name__ == "__main__":
    end_by_ctrl_c()

from pyspark.sql import functions as F

from shardwire.config import SegmentationConfig
from shardwire.spark import job_session, segment_messages
from shardwire.spark.job import (
    EXIT_MISSING,
    EXIT_WELL,
    JobParser,
    Progress,
    add_config_arguments,
    add_output_arguments,
    add_run_arguments,
    add_source_arguments,
    config_of,
    output_of,
    refuse_summary,
    run_job,
    set_partitions,
    source_of,
    tell,
    tell_dry_run,
)

NAME = "segment_messages"


def main(arguments: list[str] | None = None) -> int:
    """0: every payload was segmented; 1: some were refused, see the column error; 2: it failed."""
    parser = JobParser(prog=f"{NAME}.py", description=__doc__.splitlines()[0])
    add_source_arguments(parser)
    add_output_arguments(parser)
    parser.add_argument("--payload", default="payload", metavar="COLUMN", help="the payloads (default: %(default)s)")
    add_config_arguments(parser)
    add_run_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: segment(options, config_of(options)))


def segment(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the job; returns the exit code."""
    output = output_of(options)
    with job_session(f"shardwire {NAME}") as spark, Progress(spark):
        refuse_summary(spark, options)
        set_partitions(spark, options)
        files = output.check(spark, [options.input])
        messages = source_of(spark, options)
        segments = segment_messages(messages, config, payload=options.payload)
        output.check_columns(segments)
        if options.dry_run:
            return tell_dry_run(NAME, messages, segments, options)
        written = output.write(segments, files, f"{NAME}: write segments")
        [row] = written.agg(
            F.countDistinct("entire_message_hash").alias("payloads"),
            F.count(F.when(~F.col("is_parity"), 1)).alias("data"),
            F.count(F.when(F.col("is_parity"), 1)).alias("parity"),
            F.coalesce(F.sum(F.length("segment")), F.lit(0)).alias("bytes"),
            F.count("error").alias("refused"),
        ).collect()
        values = {
            "different payloads": row["payloads"],
            "data segments": row["data"],
            "parity segments": row["parity"],
            "bytes of segments": row["bytes"],
            "payloads refused": row["refused"],
        }
        return tell(NAME, values, options, spark, EXIT_MISSING if row["refused"] else EXIT_WELL)


if __name__ == "__main__":
    sys.exit(main())
