"""What Spark raises, in one line."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from shardwire.errors import ShardwireError

# Where Spark's own words do not say what to do about it here.
_REMEDIES = {
    "No space left on device": "the disk is full: make room where it writes, or where spark.local.dir is",
    "Mkdirs failed to create": "give a place where this user may write, and --partition-by no column of long texts",
    "mkdir of ": "give a place where this user may write",
    **dict.fromkeys(
        ("DATA_SOURCE_NOT_ENABLED]", "[DATA_SOURCE_NOT_FOUND]"),
        "where that is its name, --packages brings the connector, see docs/guide/spark_clusters.md",
    ),
    "No module named 'shardwire": "the executors' Python needs shardwire, see docs/guide/spark_clusters.md",
    "[PATH_ALREADY_EXISTS]": "give another output, or --overwrite",
    "[UNABLE_TO_INFER_SCHEMA]": "the input has no Parquet files",
    "is not a Parquet file": "--skip-corrupt leaves such files out",
    "CANNOT_READ_FILE": "--skip-corrupt leaves such files out",
    "Could not read footer": "--skip-corrupt leaves such files out",
    "PARQUET_COLUMN_DATA_TYPE_MISMATCH": "write that file anew with the columns of the first one",
    "FAILED_READ_FILE": "--skip-corrupt leaves such files out",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": "give --by as the checkpoint has it; or a new checkpoint and a "
    "new output, as where an earlier shardwire made it",
    "Multiple streaming ": "another run has this checkpoint: end it first, or give a new checkpoint and a new output",
    "Python worker failed to connect back": "Spark waits 10 s for its driver's Python to start, and on a busy "
    "machine that takes longer: run it again, a stream with the same checkpoint",
    "stopped SparkContext": f"does the cluster run the Spark of this driver, {pyspark.__version__}?",
    "All masters are unresponsive": f"does the master run the Spark of this driver, {pyspark.__version__}?",
}
# Of calls to it, where the one that it died of has not told.
_OF_DEAD_JAVA = (ConnectionRefusedError, ConnectionResetError, Py4JNetworkError)
_JAVA_ENDED = (
    "Spark's Java has ended, as it does where it lacks memory: give it more by spark.driver.memory, or "
    "--driver-memory of spark-submit"
)
# A logger's filter does not see what its children log. That of the root makes a handler where there is none, which
# then tells what they log.
_LOGGERS_OF_PY4J = (None, "py4j.java_gateway", "py4j.clientserver")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(:|$)")


@contextmanager
def failures_told() -> Iterator[None]:
    """Tells in one line what Spark raises.

    Raises:
        ShardwireError: It raised.
        KeyboardInterrupt: It raised on the way out of an interruption.
    """
    try:
        with without_frames_of_py4j():
            yield
    except (PySparkException, Py4JError, *_OF_DEAD_JAVA) as error:
        if is_of_interruption(error):
            raise KeyboardInterrupt from error
        raise ShardwireError(f"Spark failed: {reason_of(error)}") from error


def is_of_interruption(error: BaseException | None) -> bool:
    """Whether it was raised on the way out: Ctrl-C ends the call that was at work, or the Java that would take half an
    output away."""
    return _is_of(error, KeyboardInterrupt)


def _is_of(error: BaseException | None, *kinds: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kinds):
        error = error.__context__
    return error is not None


@contextmanager
def without_frames_of_py4j() -> Iterator[None]:
    """Keeps out of the log what py4j says of errors that it raises as well."""
    loggers = [logging.getLogger(name) for name in _LOGGERS_OF_PY4J]
    for logger in loggers:
        logger.addFilter(_is_no_error_of_py4j)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_no_error_of_py4j)


def _is_no_error_of_py4j(record: logging.LogRecord) -> bool:
    """What it also raises, Ctrl-C above all, it logs with its own frames, and then what fails as it closes a socket."""
    return Path(record.pathname).parent.name != "py4j" or not record.exc_info


def reason_of(error: Exception) -> str:
    """The line that says what happened, out of pages that Spark says about it; the kind of an error without words."""
    if _is_of(error, *_OF_DEAD_JAVA):
        return _JAVA_ENDED
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = str(error)
    lines = [line.strip() if line.startswith(":") else line for line in text.splitlines() if line.strip()]
    # What failed in Python on an executor stands below its traceback, in the first line that is not indented.
    below = lines[max((n + 1 for n, line in enumerate(lines) if "Traceback (most recent" in line), default=0) :]
    raised = next((line for line in below if _RAISED.match(line)), None) if len(below) < len(lines) else None
    if raised is None:
        # Before its own words py4j names the call that failed.
        told = (line.lstrip(": ") for line in lines if not line.startswith("An error occurred while calling "))
        raised = next(told, type(error).__name__)
    # Of ours the words say it all, and of Spark's the condition that it names.
    raised = re.sub(r"^shardwire\.errors\.\w+: |^org\.apache\.spark\.[\w.]+: (?=\[)", "", raised)
    # The line may be a general one above the one that has a remedy.
    remedies = [remedy for mark, remedy in _REMEDIES.items() if mark in raised] or [
        remedy for mark, remedy in _REMEDIES.items() if mark in text
    ]
    return "; ".join([raised, *remedies[:1]])
