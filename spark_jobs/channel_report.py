"""Reports on a channel: Parquet with a row a wire message in; answers as Parquet and a picture out.

spark-submit spark_jobs/channel_report.py --help
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardwire.ending_signals import end_by_ctrl_c

if __name__ == "__main__":
    end_by_ctrl_c()

from pyspark.sql import functions as F

from shardwire.errors import ConfigError
from shardwire.spark import channel_report, job_session
from shardwire.spark.files import SinkFiles
from shardwire.spark.job import (
    EXIT_MISSING,
    EXIT_WELL,
    JobParser,
    Progress,
    add_run_arguments,
    add_source_arguments,
    add_unwrap_arguments,
    refuse_summary,
    run_job,
    source_of,
    tell,
    tell_dry_run,
    unwrap_steps_of,
)
from shardwire.spark.report_plot import check_picture

NAME = "channel_report"
ANSWERS = ("traffic", "overhead", "gaps", "acknowledgements", "unread")


def main(arguments: list[str] | None = None) -> int:
    """0: nothing was lost; 1: messages are lost or could not be read; 2: the arguments are wrong or it failed."""
    parser = JobParser(prog=f"{NAME}.py", description=__doc__.splitlines()[0])
    add_source_arguments(parser)
    parser.add_argument("output", help=f"directory that gets {', '.join(ANSWERS)}, each as Parquet")
    parser.add_argument("--payload", default="payload", metavar="COLUMN", help="the messages (default: %(default)s)")
    parser.add_argument("--timestamp", metavar="COLUMN", help="the times (default: timestamp, if it is there)")
    parser.add_argument("--sds", choices=("spec", "nim"), help="the SDS wire (default: what --unwrap names, else spec)")
    parser.add_argument(
        "--interval-ms", type=int, default=60_000, metavar="MS", help="width of an interval (default: %(default)s)"
    )
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw traffic and latency into a picture")
    parser.add_argument("--overwrite", action="store_true", help="replace the output once everything is written")
    add_unwrap_arguments(parser)
    add_run_arguments(parser)
    options = parser.parse_args(arguments)
    return run_job(lambda: report(options))


def report(options: argparse.Namespace) -> int:
    """Runs the job; returns the exit code."""
    steps = unwrap_steps_of(options)
    if options.picture is not None:
        # Before the work, not after it.
        if options.picture.is_dir() or not options.picture.parent.is_dir():
            raise ConfigError(f"--picture is {str(options.picture)!r}: give a file in a directory that exists")
        check_picture(options.picture)
    with job_session(f"shardwire {NAME}") as spark, Progress(spark):
        refuse_summary(spark, options)
        files = SinkFiles(spark, options.output, [options.input], replace=options.overwrite)
        if options.overwrite:
            files.refuse_foreign(options.output, ANSWERS)
        if options.picture is not None and files.is_within(f"file://{options.picture.absolute()}", options.output):
            raise ConfigError(
                f"--picture is {str(options.picture)!r}, in the output {options.output!r}: give another file"
            )
        source = source_of(spark, options)
        found = channel_report(
            source,
            payload=options.payload,
            unwrap=steps,
            sds=options.sds,
            timestamp=options.timestamp,
            interval_ms=options.interval_ms,
        )
        if options.dry_run:
            return tell_dry_run(NAME, source, found.messages, options)
        found.decoded.persist()
        try:
            with files.staged():
                written: dict[str, Any] = {}
                for name in ANSWERS:
                    spark.sparkContext.setJobDescription(f"shardwire: {NAME}: write {name}")
                    answer = getattr(found, name)
                    files.write(answer.write, f"result/{name}")
                    written[name] = spark.read.schema(answer.schema).parquet(files.path(f"result/{name}"))
                spark.sparkContext.setJobDescription(f"shardwire: {NAME}: count what was written")
                sums = [F.sum(name) for name in ("messages", "repeats", "bytes", "content_bytes")]
                messages, repeats, size, content = (value or 0 for value in written["overhead"].agg(*sums).collect()[0])
                gaps = {row["state"]: row["count"] for row in written["gaps"].groupBy("state").count().collect()}
                unread = written["unread"].agg(sums[0]).collect()[0][0] or 0
                if options.picture is not None:
                    replace(found, **written).plot(options.picture)
                files.publish("result")
        finally:
            found.decoded.unpersist()
        values = {
            "messages": messages,
            "repeats": repeats,
            "bytes": size,
            "bytes of content": content,
            "messages that came late": gaps.get("late", 0),
            "messages lost": gaps.get("lost", 0),
            "messages that could not be read": unread,
        }
        return tell(NAME, values, options, spark, EXIT_MISSING if gaps.get("lost") or unread else EXIT_WELL)


if __name__ == "__main__":
    sys.exit(main())
