"""What the `spark_jobs` scripts share: the configuration as options, progress, the summary, exit codes."""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TextIO

from shardwire.archive.unwrap import UnwrapStep, decrypt
from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError, ShardwireError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FAILED = 2
# Where Spark's own words do not say what to do about it here.
_REMEDIES = {
    "No module named 'shardwire": "the executors' Python needs shardwire, see docs/guide/spark_clusters.md",
    "[PATH_ALREADY_EXISTS]": "give another output, or --overwrite",
    "[UNABLE_TO_INFER_SCHEMA]": "the input has no Parquet files",
}
_RAISED = re.compile(r"[A-Za-z_][\w.]*(:|$)")
_PROGRESS_INTERVAL_S = 1.0


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that make a `SegmentationConfig`, with its defaults."""
    defaults = SegmentationConfig()
    group = parser.add_argument_group("segmentation")
    group.add_argument("--segment-size-bytes", type=int, default=defaults.segment_size_bytes, help="%(default)s")
    group.add_argument("--parity-rate", type=float, help="parity segments per data segment; none where it is not given")
    group.add_argument(
        "--erasure-code", choices=("leopard", "vandermonde"), default=defaults.erasure_code, help="%(default)s"
    )
    group.add_argument(
        "--wire-format", choices=("raw", "draft", "lip243"), default=defaults.wire_format, help="%(default)s"
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


def add_unwrap_arguments(parser: argparse.ArgumentParser, layers: Sequence[str]) -> None:
    """Adds the options that say what is around the messages, and where the executors find the keys."""
    group = parser.add_argument_group("unwrapping")
    group.add_argument("--unwrap", nargs="*", default=[], choices=layers, help="what is around, outermost first")
    group.add_argument("--key-file", metavar="PATH", help="decrypt: the key file, at this path on every executor")
    group.add_argument("--key-env", metavar="NAME", help="decrypt: an environment variable of the executors")
    group.add_argument("--channel-id", metavar="ID", help="decrypt: the channel that the messages belong to")


def unwrap_steps_of(options: argparse.Namespace) -> list[UnwrapStep]:
    """The steps that the options describe.

    Raises:
        ConfigError: "decrypt" without a key, or with both a file and a variable.
    """
    return [_step_of(name, options) for name in options.unwrap]


def _step_of(name: str, options: argparse.Namespace) -> UnwrapStep:
    if name != "decrypt":
        return name  # type: ignore[return-value]  # argparse admits the names of steps alone
    if (options.key_file is None) == (options.key_env is None):
        raise ConfigError("--unwrap decrypt needs either --key-file or --key-env: give one of them")
    return decrypt(key_file=options.key_file, key_env=options.key_env, channel_id=options.channel_id)


def run_job(job: Callable[[], int]) -> int:
    """The job's exit code; an error is one line on stderr and exit code 2."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return job()
    except ShardwireError as error:
        reason = str(error)
    except (PySparkException, Py4JError) as error:
        reason = reason_of(str(error)) or type(error).__name__
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    sys.stderr.write(f"error: {reason}\n")
    return EXIT_FAILED


def reason_of(text: str) -> str:
    """The line that says what happened, out of pages that Spark says about it."""
    lines = [line.strip() if line.startswith(":") else line for line in text.splitlines() if line.strip()]
    # What failed in Python on an executor stands below its traceback, in the first line that is not indented.
    below = lines[max((n + 1 for n, line in enumerate(lines) if line.strip().startswith("Traceback (")), default=0) :]
    raised = next((line for line in below if _RAISED.match(line)), None) if len(below) < len(lines) else None
    if raised is None:
        # Before its own words py4j names the call that failed.
        told = (line.lstrip(": ") for line in lines if not line.startswith("An error occurred while calling "))
        raised = next(told, "")
    remedies = [remedy for mark, remedy in _REMEDIES.items() if mark in raised]
    return "; ".join([raised, *remedies])


def print_table(title: str, values: Mapping[str, object]) -> None:
    """Prints the summary at the end of a job to stdout."""
    width = max(map(len, values))
    lines = [title, *(f"  {name:<{width}}  {grouped(value):>15}" for name, value in values.items())]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


class Progress:
    """Says once a second on a terminal, or once a stage elsewhere, how many tasks are done."""

    def __init__(self, spark: SparkSession, stream: TextIO | None = None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shardwire-progress", daemon=True)
        self._said: str | None = None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        seconds = time.monotonic() - self._started
        end = "\r\x1b[K" if self._is_terminal else ""
        self._stream.write(f"{end}done in {seconds:.1f} s\n")
        self._stream.flush()

    def _watch(self) -> None:
        while not self._ended.wait(_PROGRESS_INTERVAL_S):
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    self._say(stage, info.numCompletedTasks, info.numTasks)

    def _say(self, stage: int, completed: int, total: int) -> None:
        if self._is_terminal:
            self._stream.write(f"\r\x1b[Kstage {stage}: {completed} of {total} tasks")
        elif (text := f"stage {stage}: {total} tasks") != self._said:
            self._said = text
            self._stream.write(text + "\n")
        self._stream.flush()


def grouped(value: object) -> str:
    """A value as a reader wants it: integers with separators."""
    return f"{value:,}" if isinstance(value, int) else str(value)
