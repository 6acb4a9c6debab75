"""Reconstructs messages: an archive with a row a wire message in, a row a message out.

spark-submit spark_jobs/reconstruct_messages.py --help
"""

from __future__ import annotations

import argparse
import sys

from shardwire.ending_signals import end_by_ctrl_c

if __name__ == "__main__":
    end_by_ctrl_c()

from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError
from shardwire.spark import job_session, reconstruct
from shardwire.spark.dead_letters import dead_letters, with_file
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
    refuse_shared,
    refuse_summary,
    run_job,
    set_partitions,
    source_of,
    tell,
    tell_dry_run,
    unwrap_steps_of,
)
from shardwire.spark.output import JobOutput

NAME = "reconstruct_messages"


def main(arguments: list[str] | None = None) -> int:
    """0: every message is there; 1: some are incomplete or invalid, or rows are no segment; 2: it failed."""
    parser = JobParser(prog=f"{NAME}.py", description=__doc__.splitlines()[0])
    add_source_arguments(parser)
    add_output_arguments(parser)
    parser.add_argument(
        "--dead-letters", metavar="DIRECTORY", help="write what is no segment, with reason, place and bytes"
    )
    add_column_arguments(parser)
    add_unwrap_arguments(parser)
    add_config_arguments(parser)
    add_run_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: run(options, config_of(options)))


def run(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the job; returns the exit code."""
    steps = unwrap_steps_of(options)
    output = output_of(options)
    if options.dead_letters is not None and options.key is not None:
        raise ConfigError("--dead-letters reads the segments anew, which --key spares: leave one out")
    with job_session(f"shardwire {NAME}") as spark, Progress(spark):
        refuse_summary(spark, options, options.dead_letters)
        set_partitions(spark, options)
        files = output.check(spark, [options.input])
        letters = None if options.dead_letters is None else JobOutput(options.dead_letters, overwrite=options.overwrite)
        if letters is not None:
            refuse_shared(spark, "--dead-letters", letters.path, options.input, options.output)
        letter_files = None if letters is None else letters.check(spark, [])
        source = source_of(spark, options)
        messages = reconstruct(
            source,
            config,
            payload=options.payload,
            by=options.by,
            key=options.key,
            include_payload=not options.lengths_only,
            unwrap=steps,
            timestamp=options.timestamp,
            sender=options.sender,
        )
        output.check_columns(messages)
        if options.dry_run:
            return tell_dry_run(NAME, source, messages, options)
        counts = counted_messages(output.write(messages, files, f"{NAME}: write messages"))
        if letters is not None:
            found = dead_letters(with_file(source), config, payload=options.payload, unwrap=steps)
            letters.write(found, letter_files, f"{NAME}: write dead letters")
        return tell(NAME, counts.values, options, spark, EXIT_WELL if counts.is_whole else EXIT_MISSING)


if __name__ == "__main__":
    sys.exit(main())
