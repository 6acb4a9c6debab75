"""Runs a streaming query of a job: says what each micro-batch brought, and stops it between two of them when asked."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from shardwire.errors import ConfigError
from shardwire.spark.files import Files
from shardwire.spark.job import grouped

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 1
_BOUNDARY_POLL_S = 0.02
# Where Spark keeps which files of an output were committed by which micro-batch.
_LOG = "_spark_metadata"


@dataclass(slots=True)
class StreamTotals:
    """What a run of a query did.

    Attributes:
        batches: Micro-batches that read something.
        rows_read: Rows of the source.
        entries_held: Rows of its state at the end: of unfinished messages, and of buckets of what is remembered.
    """

    batches: int = 0
    rows_read: int = 0
    entries_held: int = 0


def secret_of(value: str, name: str) -> str:
    """The value of an option: @file:PATH stands for what a file of the driver holds, @env:NAME for a variable.

    Raises:
        ConfigError: There is no such file or variable.
    """
    kind, _, place = value.partition(":")
    if kind == "@env":
        if place not in os.environ:
            raise ConfigError(f"--option {name} names the environment variable {place!r}, which is not set")
        return os.environ[place]
    if kind == "@file":
        try:
            return Path(place).read_text().strip()
        except OSError as error:
            raise ConfigError(f"--option {name} names the file {place!r}: {error.strerror}") from None
    return value


def refuse_file(files: Files, source: str) -> None:
    """Refuses an input that is one file: Spark makes no stream of it, and begins a checkpoint that no other can use.

    Raises:
        ConfigError: It is.
    """
    system, full = files.located(source)
    if system.isFile(full):
        raise ConfigError(f"the input {source!r} is a file: give a directory, or a pattern of files")


def refuse_parted(files: Files, output: str, checkpoint: str) -> None:
    """Refuses an output of files and a checkpoint that are not those of one query.

    Spark passes over every micro-batch whose number the log of the output has already, and an output whose log begins
    in the middle cannot be read.

    Raises:
        ConfigError: They are not, the output holds other files, or Spark reads its name as a pattern.
    """
    files.refuse_pattern(output)
    written, ended, begun = (
        max((_batch_of(name) for name in files.names_in(place)), default=-1)
        for place in (f"{output}/{_LOG}", f"{checkpoint}/commits", f"{checkpoint}/offsets")
    )
    # A driver that is killed leaves the last micro-batch begun, and perhaps written.
    if not ended <= written <= begun:
        raise ConfigError(
            f"the output {output!r} and the checkpoint {checkpoint!r} are not those of one query: give the two that "
            "belong together, or new directories for both"
        )
    if begun < 0 and any(not name.startswith((".", _LOG)) for name in files.names_in(output)):
        raise ConfigError(
            f"the output {output!r} exists: give another one, or the checkpoint of the query that made it"
        )


def has_committed(files: Files, checkpoint: str) -> bool:
    """Whether any micro-batch of a query has ended: none does before something comes."""
    return any(_batch_of(name) >= 0 for name in files.names_in(f"{checkpoint}/commits"))


def _batch_of(name: str) -> int:
    """The number of the micro-batch that a file of a log is of; -1 of what is none."""
    number = name.removesuffix(".compact")
    return int(number) if number.isascii() and number.isdigit() else -1


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, instead of ending the process; the second one ends it.

    It holds inside a session alone: a session that is made later takes SIGINT for itself.
    """
    stop = threading.Event()

    def set_stop(*_: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, set_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(
    query: StreamingQuery, stop: threading.Event, stop_file: Path | None = None, stream: TextIO | None = None
) -> StreamTotals:
    """Waits for the end of a query, a line a micro-batch; stops it when `stop` is set or `stop_file` appears.

    A query is stopped between two micro-batches, so that nothing has to be done again when it goes on.

    Raises:
        StreamingQueryException: The query failed.
    """
    totals, told = StreamTotals(), -1
    stream = stream or sys.stderr
    while query.isActive:
        query.awaitTermination(_POLL_S)
        told = _tell(query, totals, told, stream)
        if stop.is_set() or (stop_file is not None and stop_file.exists()):
            _await_boundary(query)
            query.stop()
    # Raises what ended it.
    query.awaitTermination()
    _tell(query, totals, told, stream)
    return totals


def _await_boundary(query: StreamingQuery) -> None:
    """Waits until a micro-batch has ended; under load the next one begins at once."""

    def last() -> int:
        progress = query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    def is_at_work() -> bool:
        status = query.status
        # From its start to its first trigger a query that is stopped may fail of that.
        return bool(status["isTriggerActive"]) or str(status["message"]).startswith("Initializing")

    before = last()
    while query.isActive and is_at_work() and last() == before:
        time.sleep(_BOUNDARY_POLL_S)


def _tell(query: StreamingQuery, totals: StreamTotals, told: int, stream: TextIO) -> int:
    """Writes the micro-batches after number `told`; returns the last one."""
    for progress in query.recentProgress:
        number, rows = int(progress["batchId"]), int(progress["numInputRows"])
        totals.entries_held = sum(int(operator["numRowsTotal"]) for operator in progress["stateOperators"])
        if number <= told or not progress["durationMs"].get("addBatch"):
            continue
        told = number
        totals.batches += rows > 0
        totals.rows_read += rows
        milliseconds = progress["durationMs"]["triggerExecution"]
        stream.write(
            f"micro-batch {number}: {grouped(rows)} rows in {milliseconds / 1000:.1f} s, "
            f"{grouped(totals.entries_held)} entries of state\n"
        )
        stream.flush()
    return told
