"""What the `spark_jobs` scripts share: the configuration as options, progress, the summary, exit codes."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self, TextIO

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from shardwire.archive.arrow import STATUSES
from shardwire.archive.unwrap import LAYERS, UnwrapStep, steps_of
from shardwire.config import SegmentationConfig
from shardwire.ending_signals import EXIT_INTERRUPTED, as_ctrl_c
from shardwire.errors import ConfigError, ShardwireError
from shardwire.option_words import in_words_of_the_line
from shardwire.quoting import listed, printable
from shardwire.spark.failures import is_of_interruption, reason_of, without_frames_of_py4j
from shardwire.spark.files import Files
from shardwire.spark.output import JobOutput, format_of
from shardwire.spark.reading import LEAVES_OUT, read_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The same in every job: all is well; a message is missing or a row is no segment; arguments are wrong, or it failed.
EXIT_WELL, EXIT_MISSING, EXIT_FAILED = 0, 1, 2
_PROGRESS_INTERVAL_S = 1.0


class JobParser(argparse.ArgumentParser):
    """Says where input and output go, too: a list before them takes them."""

    def error(self, message: str) -> NoReturn:
        lists = [action.option_strings[0] for action in self._actions if action.nargs == "*"]
        if lists and " required: " in message and "output" in message:
            message += f"; {' and '.join(lists)} take all that follows: give input and output before, or after --"
        super().error(message)


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is read."""
    parser.add_argument("input", help="files, a directory, or the path of a table")
    parser.add_argument(
        "--input-format",
        type=format_of,
        default="parquet",
        metavar="NAME",
        help="as Spark names it (default: %(default)s)",
    )
    parser.add_argument("--skip-corrupt", action="store_true", help="leave out files that cannot be read")


def add_column_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which column has what."""
    group = parser.add_argument_group("columns")
    group.add_argument("--payload", default="payload", metavar="COLUMN", help="the messages (default: %(default)s)")
    add_by_argument(group)
    group.add_argument("--key", metavar="COLUMN", help="a column with entire_message_hash, where there is one")
    group.add_argument("--timestamp", metavar="COLUMN", help="the times (default: timestamp, if it is there)")
    group.add_argument("--sender", metavar="COLUMN", help="who sent each message (default: what SDS messages say)")
    group.add_argument("--lengths-only", action="store_true", help="write the lengths of the payloads alone")


def add_by_argument(parser: argparse._ActionsContainer) -> None:
    """Adds the columns that keep messages apart: like every list one by one, as on the command line, or at once."""
    parser.add_argument(
        "--by", nargs="*", action="extend", default=[], metavar="COLUMN", help="columns that keep messages apart"
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is written."""
    parser.add_argument("output", help="a directory, which must not exist yet unless --overwrite is given")
    group = parser.add_argument_group("output")
    group.add_argument("--overwrite", action="store_true", help="replace the output once everything is written")
    group.add_argument(
        "--output-format",
        type=format_of,
        default="parquet",
        metavar="NAME",
        help="as Spark names it (default: %(default)s)",
    )
    group.add_argument(
        "--partition-by",
        nargs="*",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns that become directories; with --overwrite only the directories that are written are replaced",
    )
    group.add_argument("--partitions", type=int, metavar="COUNT", help="tasks that put messages together, at most")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how the job tells what it did."""
    parser.add_argument("--summary", metavar="FILE", help="write the summary into a file, as JSON")
    parser.add_argument("--dry-run", action="store_true", help="check arguments, columns and places, and write nothing")


def skip_corrupt(spark: SparkSession, options: argparse.Namespace) -> None:
    """Applies --skip-corrupt."""
    if options.skip_corrupt:
        spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")


def source_of(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """What is read.

    Raises:
        ConfigError: A table of Delta or Iceberg is read as Parquet; or as `read_parquet` raises it.
    """
    skip_corrupt(spark, options)
    if options.input_format == "parquet":
        Files(spark).refuse_table(options.input)
        return read_parquet(spark, options.input)
    return spark.read.format(options.input_format).load(options.input)


def output_of(options: argparse.Namespace) -> JobOutput:
    """What is written."""
    return JobOutput(options.output, options.output_format, options.overwrite, tuple(options.partition_by))


def refuse_summary(spark: SparkSession, options: argparse.Namespace, *others: str | None) -> None:
    """Refuses a place of --summary where no file can be written, or within what the job reads or writes, before
    anything is done.

    Args:
        spark: The session.
        options: Those of a job with an input and an output.
        others: Further places that the job reads or writes; None is none.

    Raises:
        ConfigError: It is such a place.
    """
    if options.summary is None:
        return
    refuse_shared(spark, "--summary", options.summary, options.input, options.output, *others)
    files = Files(spark)
    system, full = files.located(options.summary)
    if system.isDirectory(full):
        raise ConfigError(f"--summary is {options.summary!r}, a directory: give a file")
    files.refuse_unwritable("--summary", options.summary)


def refuse_shared(spark: SparkSession, option: str, given: str, *others: str | None) -> None:
    """Refuses a place that an option gives and that overlaps another one that the job reads or writes; None is none.

    Raises:
        ConfigError: It does.
    """
    files = Files(spark)
    for place in filter(None, others):
        if files.is_within(given, place) or files.is_within(place, given):
            raise ConfigError(f"{option} is {given!r}, and overlaps {place!r}: give one outside it")


def set_partitions(spark: SparkSession, options: argparse.Namespace) -> None:
    """Applies --partitions.

    Raises:
        ConfigError: It is below 1.
    """
    if options.partitions is not None:
        if options.partitions < 1:
            raise ConfigError(f"--partitions is {options.partitions}: it must be at least 1")
        spark.conf.set("spark.sql.shuffle.partitions", str(options.partitions))


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that make a `SegmentationConfig`, with its defaults."""
    defaults = SegmentationConfig()
    group = parser.add_argument_group("segmentation")
    # The name of the command line, and the one before.
    names = ("--segment-size", "--segment-size-bytes")
    group.add_argument(
        *names,
        type=int,
        default=defaults.segment_size_bytes,
        dest="segment_size_bytes",
        metavar="BYTES",
        help="payload bytes of a segment; under lip243 its whole size (default: %(default)s)",
    )
    group.add_argument(
        "--parity-rate", type=float, metavar="RATE", help="parity segments per data segment; none where it is not given"
    )
    group.add_argument(
        "--erasure-code",
        choices=("leopard", "vandermonde"),
        default=defaults.erasure_code,
        help="Reed-Solomon code of the parity segments (default: %(default)s)",
    )
    group.add_argument(
        "--wire-format",
        choices=("raw", "draft", "lip243"),
        default=defaults.wire_format,
        help="wire of the segments (default: %(default)s)",
    )


def config_of(options: argparse.Namespace) -> SegmentationConfig:
    """The configuration that the options describe.

    Raises:
        ConfigError: A value is out of its limits.
    """
    return SegmentationConfig(
        segment_size_bytes=options.segment_size_bytes,
        enable_reed_solomon=options.parity_rate is not None,
        parity_rate=SegmentationConfig().parity_rate if options.parity_rate is None else options.parity_rate,
        erasure_code=options.erasure_code,
        wire_format=options.wire_format,
    )


def add_unwrap_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say what is around the messages, and where the executors find the keys."""
    group = parser.add_argument_group("unwrapping")
    group.add_argument(
        "--unwrap", nargs="*", action="extend", default=[], choices=LAYERS, help="what is around, outermost first"
    )
    group.add_argument("--key-file", metavar="PATH", help="decrypt: the key file, as every executor finds it")
    group.add_argument("--key-env", metavar="NAME", help="decrypt: an environment variable of the executors")
    group.add_argument("--channel-id", metavar="ID", help="decrypt: the channel that the messages belong to")
    group.add_argument(
        "--cipher",
        choices=("chacha20-poly1305", "aes-256-gcm"),
        default="chacha20-poly1305",
        help="decrypt: the cipher (default: %(default)s)",
    )


def unwrap_steps_of(options: argparse.Namespace) -> list[UnwrapStep]:
    """The steps that the options describe.

    Raises:
        ConfigError: "decrypt" without a key, or with both a file and a variable, or a key without "decrypt".
    """
    return steps_of(
        options.unwrap,
        key_file=options.key_file,
        key_env=options.key_env,
        channel_id=options.channel_id,
        cipher=options.cipher,
    )


def run_job(job: Callable[[], int]) -> int:
    """The job's exit code; an error is one line on stderr and exit code 2, an interruption is one and 130.

    SIGTERM and a closed terminal interrupt as Ctrl-C does, so that nothing half written is left beside the output.
    """
    try:
        with without_frames_of_py4j(), as_ctrl_c():
            return job()
    except KeyboardInterrupt:
        return _tell_interruption()
    except (ShardwireError, PySparkException, Py4JError, OSError) as error:
        if is_of_interruption(error):
            return _tell_interruption()
        reason = _told(error)
    sys.stderr.write(f"error: {reason}\n")
    return EXIT_FAILED


def _told(error: Exception) -> str:
    if isinstance(error, ShardwireError):
        return in_words_of_the_line(str(error)).replace(LEAVES_OUT, "--skip-corrupt")
    return reason_of(error)


def _tell_interruption() -> int:
    sys.stderr.write("interrupted\n")
    return EXIT_INTERRUPTED


def print_table(title: str, values: Mapping[str, object]) -> None:
    """Prints the summary at the end of a job to stdout."""
    width = max(map(len, values))
    lines = [title, *(f"  {name:<{width}}  {printable(grouped(value)):>15}" for name, value in values.items())]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class CountedMessages:
    """What a job has written, for its summary.

    Attributes:
        values: By name.
        is_whole: Whether every message is there, and every row was a segment.
    """

    values: dict[str, int]
    is_whole: bool


def counted_messages(written: DataFrame) -> CountedMessages:
    """Counts messages by status, and rows that are no segment by reason."""
    is_read = F.col("entire_message_hash").isNotNull()
    reason = F.when(~is_read, F.col("error")).alias("reason")
    rows = written.groupBy(F.when(is_read, F.col("status")).alias("status"), reason).agg(
        F.count("*").alias("messages"),
        F.coalesce(F.sum("payload_length"), F.lit(0)).alias("bytes"),
        F.coalesce(F.sum("data_segments_recovered"), F.lit(0)).alias("recovered"),
        F.coalesce(F.sum("duplicates"), F.lit(0)).alias("duplicates"),
        F.coalesce(F.sum("segments_received"), F.lit(0)).alias("segments"),
    )
    found = sorted(rows.collect(), key=lambda row: row["reason"] or "")
    messages = [row for row in found if row["status"] is not None]
    by_status = {row["status"]: row["messages"] for row in messages}
    unread = {f"rows: {row['reason']}": row["segments"] for row in found if row["status"] is None}
    values = {
        **{f"messages {status}": by_status.get(status, 0) for status in STATUSES},
        "bytes of payloads": sum(row["bytes"] for row in messages),
        "data segments recovered": sum(row["recovered"] for row in messages),
        "duplicate segments": sum(row["duplicates"] for row in messages),
        **unread,
    }
    is_whole = not (unread or by_status.get("incomplete") or by_status.get("invalid"))
    return CountedMessages(values, is_whole)


def tell(
    title: str, values: Mapping[str, object], options: argparse.Namespace, spark: SparkSession, exit_code: int
) -> int:
    """Prints the summary, and writes it where --summary says; returns the exit code."""
    print_table(title, values)
    if options.summary is not None:
        told = {"job": title, "exit_code": exit_code, "values": dict(values)}
        Files(spark).write_text(options.summary, json.dumps(told, indent=1) + "\n")
    return exit_code


def tell_dry_run(title: str, df: DataFrame, result: DataFrame, options: argparse.Namespace) -> int:
    """Prints what would be read and written."""
    places = {"would read": options.input, "would write": options.output}
    # A stream has partitions in each of its micro-batches alone.
    partitions = {} if df.isStreaming else {"partitions": df.rdd.getNumPartitions()}
    print_table(f"{title} (dry run)", {**places, **partitions, "columns": listed(result.columns)})
    return EXIT_WELL


class Progress:
    """Says once a second on a terminal, or once for each stage elsewhere, how many tasks are done."""

    def __init__(self, spark: SparkSession, stream: TextIO | None = None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shardwire-progress", daemon=True)
        self._said: set[int] = set()

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        seconds = time.monotonic() - self._started
        end = "\r\x1b[K" if self._is_terminal else ""
        # What failed is told in its own line.
        self._stream.write(f"{end}done in {seconds:.1f} s\n" if kind is None else end)
        self._stream.flush()

    def _watch(self) -> None:
        while not self._ended.wait(_PROGRESS_INTERVAL_S):
            try:
                found = [self._tracker.getStageInfo(stage) for stage in sorted(self._tracker.getActiveStageIds())]
            except (Py4JError, OSError):
                # Java has died, of which the job tells.
                return
            self._say([(info.stageId, info.numCompletedTasks, info.numTasks) for info in found if info is not None])

    def _say(self, stages: Sequence[tuple[int, int, int]]) -> None:
        if self._is_terminal:
            # Stages that run side by side share the line.
            text = ", ".join(f"stage {stage}: {completed} of {total} tasks" for stage, completed, total in stages)
            self._stream.write(f"\r\x1b[K{text}")
        for stage, _, total in stages if not self._is_terminal else ():
            if stage not in self._said:
                self._said.add(stage)
                self._stream.write(f"stage {stage}: {total} tasks\n")
        self._stream.flush()


def grouped(value: object) -> str:
    """A value as a reader wants it: integers with separators."""
    return f"{value:,}" if isinstance(value, int) else str(value)
