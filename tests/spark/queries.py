"""Streaming queries that read until they have all that there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

# Spark gives a Python worker of the driver 10 s to begin, which no setting changes and a busy machine exceeds.
LATE_WORKER = "Python worker failed to connect back"
STARTS_MAX = 5


def run_to_end(messages: DataFrame, directory: Path, out: str = "out") -> list[Any]:
    """Writes a stream to Parquet files until all that there is was read; returns the progress of each micro-batch."""
    writer = messages.writeStream.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    return until_ended(lambda: writer.start(str(directory / out), format="parquet", outputMode="append"))


def until_ended(start: Callable[[], StreamingQuery]) -> list[Any]:
    """Starts a query, and again from its checkpoint where the machine was too slow for it; all its progress."""
    progress: list[Any] = []
    for left in reversed(range(STARTS_MAX)):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not left or LATE_WORKER not in str(error):
                raise
        else:
            return progress + list(query.recentProgress)
        progress += query.recentProgress
    raise AssertionError("a query was started no time at all")
