"""The data source `waku-store` as a stream: offsets are times, so a restart asks for what it had asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from shardwire.node.protocol import StoreQuery
from shardwire.node.store_client import StoreClient
from shardwire.spark.store_options import StoreOptions
from shardwire.spark.versions import DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        # PySpark 4.1 has no limits for Python sources: it reads all that there is in one micro-batch.
        SupportsTriggerAvailableNow = object

_NANOSECONDS_PER_MILLISECOND = 1_000_000
_TIME = "time_ns"


class WakuStoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans spans of time on the driver and reads their pages on the executors.

    An offset {"time_ns": t} says that everything before t was read.
    """

    def __init__(self, options: Mapping[str, str], *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._options = StoreOptions.of(options)
        self._clock_ns = clock_ns
        self._target_ns: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """The option startTime, or the time of the oldest message."""
        start_ns = self._options.range.start_time_ns
        return {_TIME: self._oldest_ns() if start_ns is None else start_ns}

    def latestOffset(self, start: dict[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:
        """How far a micro-batch reads: never back, never beyond the end, at most `batchMs` where Spark allows a limit.

        PySpark 4.1 gives neither argument.
        """
        latest_ns = self._available_ns() if self._target_ns is None else self._target_ns
        if start is None:
            return {_TIME: latest_ns}
        if self._options.batch_ms is not None and type(limit).__name__ != "ReadAllAvailable":
            latest_ns = min(latest_ns, start[_TIME] + self._options.batch_ms * _NANOSECONDS_PER_MILLISECOND)
        return {_TIME: max(latest_ns, start[_TIME])}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Says whether a micro-batch is limited; by how much, `latestOffset` knows: Spark has no limit by time."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadAllAvailable() if self._options.batch_ms is None else ReadMaxRows((1 << 63) - 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of a query that reads what there is and stops."""
        self._target_ns = self._available_ns()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """A partition a range of time and topic; none where the span is empty."""
        if start[_TIME] >= end[_TIME]:
            return []
        asked = replace(self._options.range, start_time_ns=start[_TIME], end_time_ns=end[_TIME] - 1)
        return self._options.plan(asked)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The pages of one range, a batch a page."""
        return self._options.read(partition)

    def _available_ns(self) -> int:
        now_ns = self._clock_ns() - self._options.delay_ms * _NANOSECONDS_PER_MILLISECOND
        end_ns = self._options.range.end_time_ns
        return now_ns if end_ns is None else min(now_ns, end_ns + 1)

    def _oldest_ns(self) -> int:
        """The time of the oldest message of any topic; where there is none yet, from when on they are read."""
        topics = self._options.range.content_topics
        found: list[int] = []
        groups: list[tuple[str, ...]] = [(topic,) for topic in topics] or [()]
        with StoreClient(self._options.endpoint) as client:
            for group in groups:
                page = client.query(
                    StoreQuery(content_topics=group, end_time_ns=self._options.range.end_time_ns, page_size=1)
                )
                found += [message.timestamp_ns for message in page.messages]
        return min(found, default=self._available_ns())
