"""Reconstructs messages from a stream, into Parquet with a row a message, until it is stopped.

spark-submit spark_jobs/reconstruct_stream.py --help

SIGINT, SIGTERM or a file at --stop-file ends it between two micro-batches. Started again with the same checkpoint
it goes on; every message comes out once.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from shardwire.ending_signals import end_by_ctrl_c

if __name__ == "__main__":
    end_by_ctrl_c()

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardwire.archive.arrow import STATUSES
from shardwire.config import ReassemblyLimits, SegmentationConfig
from shardwire.errors import ConfigError
from shardwire.spark import job_session, reconstruct_stream, register
from shardwire.spark.files import Files
from shardwire.spark.job import (
    EXIT_MISSING,
    EXIT_WELL,
    JobParser,
    add_by_argument,
    add_config_arguments,
    add_run_arguments,
    add_unwrap_arguments,
    config_of,
    counted_messages,
    refuse_shared,
    refuse_summary,
    run_job,
    set_partitions,
    tell,
    tell_dry_run,
    unwrap_steps_of,
)
from shardwire.spark.output import FILE_FORMATS, JobOutput, format_of, refuse_unreadable
from shardwire.spark.reading import read_parquet
from shardwire.spark.stream_job import follow, has_committed, refuse_file, refuse_parted, secret_of, stop_on_signal
from shardwire.spark.unfinished import unfinished_messages
from shardwire.spark.versions import require_data_sources

NAME = "reconstruct_stream"


def main(arguments: list[str] | None = None) -> int:
    """0: every message is there; 1: some are incomplete, invalid or unfinished, or rows no segment; 2: it failed."""
    parser = JobParser(prog=f"{NAME}.py", description=__doc__.splitlines()[0])
    parser.add_argument("input", help="a directory that gets Parquet files, a store's http:// address, or kafka")
    parser.add_argument("output", help="a directory; read it with Spark, which knows what was committed")
    parser.add_argument("--checkpoint", required=True, metavar="DIRECTORY", help="where the query keeps how far it is")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source; of a secret give NAME=@file:PATH or NAME=@env:VARIABLE",
    )
    parser.add_argument("--once", action="store_true", help="read what there is, then end")
    parser.add_argument(
        "--flush",
        metavar="DIRECTORY",
        help="when it ends, write the unfinished messages there, in place of those of an earlier end",
    )
    parser.add_argument(
        "--interval-ms", type=int, default=0, metavar="MS", help="from a micro-batch to the next (default: at once)"
    )
    parser.add_argument("--stop-file", type=Path, metavar="PATH", help="end when this file appears")
    parser.add_argument("--payload", metavar="COLUMN", help="the messages (default: payload; value of kafka)")
    parser.add_argument(
        "--timestamp", metavar="COLUMN", help="the time of arrival (default: timestamp, if it is there)"
    )
    parser.add_argument("--sender", metavar="COLUMN", help="who sent each message (default: what SDS messages say)")
    parser.add_argument("--key", metavar="COLUMN", help="a column with entire_message_hash, where there is one")
    add_by_argument(parser)
    times = {
        "timeout": (ReassemblyLimits().timeout_ms, "how long an unfinished message waits for its next segment"),
        "watermark-delay": (60_000, "how far the watermark stays behind the latest time seen"),
        "remember": (3_600_000, "how long repeats of a finished message are dropped"),
    }
    for name, (default, told) in times.items():
        parser.add_argument(
            f"--{name}-ms", type=int, default=default, metavar="MS", help=f"{told} (default: %(default)s)"
        )
    parser.add_argument("--lengths-only", action="store_true", help="write the lengths of the payloads alone")
    parser.add_argument(
        "--output-format",
        type=format_of,
        default="parquet",
        metavar="NAME",
        help="as Spark names it (default: %(default)s)",
    )
    parser.add_argument("--partitions", type=int, metavar="COUNT", help="parts of the state, fixed by the checkpoint")
    add_unwrap_arguments(parser)
    add_config_arguments(parser)
    add_run_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: run(options, config_of(options)))


def run(options: argparse.Namespace, config: SegmentationConfig) -> int:
    """Runs the query to its end; returns the exit code."""
    steps = unwrap_steps_of(options)
    given = source_options(options.option, options.input)
    config = replace(config, limits=replace(config.limits, timeout_ms=options.timeout_ms))
    if options.interval_ms < 0:
        raise ConfigError(f"--interval-ms is {options.interval_ms}: it must be at least 0")
    if options.stop_file is not None and options.stop_file.exists():
        raise ConfigError(f"--stop-file is {str(options.stop_file)!r}, which is there already: take it away")
    refuse_unreadable(options.output_format)
    with job_session(f"shardwire {NAME}") as spark, stop_on_signal() as stop:
        refuse_summary(spark, options, options.checkpoint, options.flush)
        set_partitions(spark, options)
        flush = None if options.flush is None else JobOutput(options.flush, overwrite=True)
        read = options.input if is_directory(options.input) else None
        refuse_shared(spark, "--checkpoint", options.checkpoint, read)
        if read is not None:
            Files(spark).refuse_overlap(read, options.output)
        if Files(spark).is_within(options.output, options.checkpoint):
            raise ConfigError(
                f"--checkpoint is {options.checkpoint!r}, and the output {options.output!r} would lie in it: give "
                "another directory"
            )
        if options.output_format in FILE_FORMATS:
            refuse_parted(Files(spark), options.output, options.checkpoint)
        if flush is not None:
            refuse_shared(spark, "--flush", flush.path, read, options.output, options.checkpoint)
        flush_files = None if flush is None else flush.check(spark, [])
        if read is not None:
            refuse_file(Files(spark), read)
            Files(spark).refuse_table(read)
        arriving = source(spark, options.input, given)
        messages = reconstruct_stream(
            arriving,
            config,
            payload=options.payload or ("value" if options.input == "kafka" else "payload"),
            by=options.by,
            key=options.key,
            include_payload=not options.lengths_only,
            unwrap=steps,
            timestamp=options.timestamp,
            sender=options.sender,
            watermark_delay_ms=options.watermark_delay_ms,
            remember_ms=options.remember_ms,
        )
        if options.dry_run:
            return tell_dry_run(NAME, arriving, messages, options)
        observed = messages.observe(
            "shardwire",
            *(F.count_if(F.col("status") == status).alias(status) for status in STATUSES),
            F.coalesce(F.sum("payload_length"), F.lit(0)).alias("payload_bytes"),
        )
        writer = observed.writeStream.option("checkpointLocation", options.checkpoint).outputMode("append")
        timed = (
            writer.trigger(availableNow=True)
            if options.once
            else writer.trigger(processingTime=f"{options.interval_ms} milliseconds")
        )
        query = timed.queryName(NAME).start(options.output, format=options.output_format)
        totals = follow(query, stop, options.stop_file)
        if has_committed(Files(spark), options.checkpoint):
            reader = spark.read.schema(messages.schema) if options.output_format in FILE_FORMATS else spark.read
            written = reader.format(options.output_format).load(options.output)
            unfinished = unfinished_messages(
                spark, options.checkpoint, config, by=options.by, include_payload=not options.lengths_only
            )
        else:
            written = unfinished = spark.createDataFrame([], messages.schema)
        counts = counted_messages(written)
        if flush is not None:
            unfinished = flush.write(unfinished, flush_files, f"{NAME}: write unfinished messages")
        waiting = unfinished.count()
        values = {
            "micro-batches": totals.batches,
            "rows read": totals.rows_read,
            "entries of state": totals.entries_held,
            "messages unfinished": waiting,
            **counts.values,
        }
        # A stream that was told to stop goes on some day; what was read once has no more to come.
        is_whole = counts.is_whole and not (options.once and waiting)
        return tell(NAME, values, options, spark, EXIT_WELL if is_whole else EXIT_MISSING)


def is_directory(name: str) -> bool:
    """Whether the input is a directory of files."""
    return name not in ("kafka",) and not name.startswith(("http://", "https://"))


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
        named[key] = secret_of(value, key)
    return named


def source(spark: SparkSession, name: str, options: dict[str, str]) -> DataFrame:
    """The stream that the argument names."""
    if name.startswith(("http://", "https://")):
        require_data_sources()
        register(spark)
        return spark.readStream.format("waku-store").options(url=name, **options).load()
    if name == "kafka":
        return spark.readStream.format("kafka").options(**options).load()
    # A stream of files needs their schema, which those that are there tell.
    schema = read_parquet(spark, name).schema
    return spark.readStream.schema(schema).options(**options).parquet(name)


if __name__ == "__main__":
    sys.exit(main())
