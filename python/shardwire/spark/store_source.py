"""The Spark data source `waku-store`: the messages of a store node as a DataFrame, read by the executors.

spark.read.format("waku-store").option("url", "http://127.0.0.1:8645").load(), or spark.readStream for a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from shardwire.spark import versions
from shardwire.spark.store_options import SCHEMA, SOURCE_NAME, StoreOptions, StoreRange
from shardwire.spark.store_stream import WakuStoreStreamReader
from shardwire.spark.versions import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class WakuStoreDataSource(DataSource):
    """Reads a store over REST v3, in both dialects.

    Options: url (required), dialect, peerAddr, pubsubTopic, contentTopics (separated by commas), startTime and endTime
    (ns, inclusive), partitions (time ranges that tasks read side by side; needs both times), pageSize, clusterId,
    numShards, timeoutMs, retriesMax. Filters on content_topic and timestamp narrow what is asked of the store.

    As a stream it reads on from startTime (without it from the oldest message that the store holds) to endTime, or for
    ever. Further options: delayMs, how far it stays behind the clock, since a store takes a while to hold what was sent
    (10,000); batchMs, the longest span of time of a micro-batch (without it everything that there is). What reaches the
    store with a time that the stream has passed is not read. Spark pushes no filters into streams: use the options.
    """

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def schema(self) -> str:
        # Asked for by `load`: what is wrong with the options is told there, and not where rows are wanted.
        StoreOptions.of(dict(self.options))
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return WakuStoreReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return WakuStoreStreamReader(dict(self.options))


class WakuStoreReader(DataSourceReader):
    """Plans ranges on the driver and reads pages on the executors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = StoreOptions.of(options)
        self._range = self._options.range

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows the query; Spark evaluates every filter again, so a store that answers too much does no harm."""
        for given in filters:
            self._range = _narrowed(self._range, given)
            yield given

    def partitions(self) -> Sequence[InputPartition]:
        """A partition a range of time and topic."""
        return self._options.plan(self._range)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The pages of one range, a batch a page."""
        return self._options.read(partition)


def _narrowed(whole: StoreRange, given: Filter) -> StoreRange:
    """The part of the range that a filter leaves; the whole where the store cannot be asked for it."""
    kinds: Any = versions.data_source
    attribute = getattr(given, "attribute", ())
    value = getattr(given, "value", None)
    if attribute == ("content_topic",):
        topics = (value,) if isinstance(given, kinds.EqualTo) else value if isinstance(given, kinds.In) else ()
        named = [topic for topic in topics or () if isinstance(topic, str)]
        kept = tuple(
            topic for topic in dict.fromkeys(named) if not whole.content_topics or topic in whole.content_topics
        )
        # Nothing left to ask for cannot be said in a query: Spark's own filter then removes all rows.
        return replace(whole, content_topics=kept) if kept else whole
    if attribute == ("timestamp",) and isinstance(value, int):
        earliest, latest = whole.start_time_ns, whole.end_time_ns
        if isinstance(given, kinds.EqualTo | kinds.GreaterThan | kinds.GreaterThanOrEqual):
            bound = value + isinstance(given, kinds.GreaterThan)
            earliest = bound if earliest is None else max(earliest, bound)
        if isinstance(given, kinds.EqualTo | kinds.LessThan | kinds.LessThanOrEqual):
            bound = value - isinstance(given, kinds.LessThan)
            latest = bound if latest is None else min(latest, bound)
        return replace(whole, start_time_ns=earliest, end_time_ns=latest)
    return whole
