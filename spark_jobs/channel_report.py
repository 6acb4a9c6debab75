"""Reports on a channel: Parquet with a row a wire message in; answers as Parquet and a picture out.

spark-submit spark_jobs/channel_report.py --help
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import functions as F

from shardwire.spark import channel_report, job_session
from shardwire.spark.job import Progress, add_unwrap_arguments, print_table, run_job, unwrap_steps_of

ANSWERS = ("traffic", "overhead", "gaps", "acknowledgements", "unread")


def main(arguments: list[str] | None = None) -> int:
    """0: the answers are written; 2: the arguments are wrong or Spark failed."""
    parser = argparse.ArgumentParser(prog="channel_report.py", description=__doc__.splitlines()[0])
    parser.add_argument("input", help="Parquet files or directory")
    parser.add_argument("output", help=f"directory that gets {', '.join(ANSWERS)}, each as Parquet")
    parser.add_argument("--payload", default="payload", metavar="COLUMN", help="the messages (default: %(default)s)")
    parser.add_argument("--sds", choices=("spec", "nim"), default="spec", help="the SDS wire (default: %(default)s)")
    parser.add_argument("--interval-ms", type=int, default=60_000, help="width of an interval (default: %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw traffic and latency into a picture")
    parser.add_argument("--overwrite", action="store_true", help="replace the output")
    add_unwrap_arguments(parser, ("waku", "decrypt"))
    options = parser.parse_args(arguments)
    return run_job(lambda: report(options))


def report(options: argparse.Namespace) -> int:
    """Runs the job; returns the exit code."""
    steps = unwrap_steps_of(options)
    with job_session("shardwire channel_report") as spark, Progress(spark):
        found = channel_report(
            spark.read.parquet(options.input),
            payload=options.payload,
            unwrap=steps,
            sds=options.sds,
            interval_ms=options.interval_ms,
        )
        # Every answer starts from these rows.
        found.messages.cache()
        mode = "overwrite" if options.overwrite else "errorifexists"
        for name in ANSWERS:
            getattr(found, name).write.mode(mode).parquet(f"{options.output}/{name}")
        if options.picture is not None:
            found.plot(options.picture)
        written = {name: spark.read.parquet(f"{options.output}/{name}") for name in ANSWERS}
        totals = written["overhead"].agg(F.sum("messages"), F.sum("repeats"), F.sum("bytes"), F.sum("content_bytes"))
        messages, repeats, size, content = (value or 0 for value in totals.collect()[0])
        gaps = {row["state"]: row["count"] for row in written["gaps"].groupBy("state").count().collect()}
        unread = written["unread"].agg(F.coalesce(F.sum("messages"), F.lit(0))).collect()[0][0]
    print_table(
        "channel_report",
        {
            "messages": messages,
            "repeats": repeats,
            "bytes": size,
            "bytes of content": content,
            "messages that came late": gaps.get("late", 0),
            "messages lost": gaps.get("lost", 0),
            "messages that could not be read": unread,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
