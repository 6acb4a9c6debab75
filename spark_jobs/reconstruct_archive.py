"""Reconstructs a large archive, local first: Parquet with a row a wire message in, Parquet with a row a message out.

spark-submit spark_jobs/reconstruct_archive.py --help
"""

from __future__ import annotations

import argparse
import sys

from shardwire.ending_signals import end_by_ctrl_c

if __name__ == "__main__":
    end_by_ctrl_c()

from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError
from shardwire.spark import job_session, reconstruct, reconstruct_archive
from shardwire.spark.job import (
    EXIT_MISSING,
    EXIT_WELL,
    JobParser,
    Progress,
    add_column_arguments,
    add_config_arguments,
    add_output_arguments,
    add_run_arguments,
    add_source_arguments,
    add_unwrap_arguments,
    config_of,
    counted_messages,
    output_of,
    refuse_summary,
    run_job,
    set_partitions,
    skip_corrupt,
    source_of,
    tell,
    tell_dry_run,
    unwrap_steps_of,
)

NAME = "reconstruct_archive"


def main(arguments: list[str] | None = None) -> int:
    """0: every message is there; 1: some are incomplete or invalid, or rows are no segment; 2: it failed."""
    parser = JobParser(prog=f"{NAME}.py", description=__doc__.splitlines()[0])
    add_source_arguments(parser)
    add_output_arguments(parser)
    add_column_arguments(parser)
    add_unwrap_arguments(parser)
    add_config_arguments(parser)
    add_run_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: run(options, config_of(options)))


def run(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the job; returns the exit code."""
    if options.output_format != "parquet" or options.partition_by:
        raise ConfigError(
            "reconstruct_archive writes Parquet without --partition-by: use reconstruct_messages.py for other outputs"
        )
    asked = {
        "payload": options.payload,
        "by": options.by,
        "key": options.key,
        "include_payload": not options.lengths_only,
        "unwrap": unwrap_steps_of(options),
        "timestamp": options.timestamp,
        "sender": options.sender,
    }
    with job_session(f"shardwire {NAME}") as spark, Progress(spark):
        refuse_summary(spark, options)
        set_partitions(spark, options)
        output_of(options).check(spark, [options.input])
        if options.dry_run:
            source = source_of(spark, options)
            return tell_dry_run(NAME, source, reconstruct(source, config, **asked), options)
        skip_corrupt(spark, options)
        # A path is read there in the order of its files, and columns once: of many files that takes a while.
        given = options.input if options.input_format == "parquet" else source_of(spark, options)
        report = reconstruct_archive(spark, given, options.output, config, replace=options.overwrite, **asked)
        counts = counted_messages(spark.read.parquet(options.output))
        shuffled = {"messages whole in a partition": report.messages_local, "bytes shuffled": report.bytes_shuffled}
        return tell(NAME, counts.values | shuffled, options, spark, EXIT_WELL if counts.is_whole else EXIT_MISSING)


if __name__ == "__main__":
    sys.exit(main())
