"""Archives, local first: what is whole within a partition never crosses the network.

Segments of one message lie near each other in an archive. Each task therefore passes once over its own partition as it
lies there, with a bounded window of open messages, and writes those that are whole; only the segments of the rest meet
in a second step. Files are written beside the sink through Spark's commit
protocol and take its place by one renaming: a retried or speculative task leaves nothing double, a failed job nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
from pyspark.errors import PySparkAttributeError
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from shardwire import _native
from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError, ShardwireError
from shardwire.spark.columns import columns_of_names
from shardwire.spark.native import Array, batch_of, columns_of, limits_of, map_in_arrow, parameters
from shardwire.spark.reconstruct import (
    ERROR,
    HASH,
    PAYLOAD,
    SEGMENT_COLUMNS,
    SEND_ID,
    SENDER,
    TIMESTAMP,
    absent_columns,
    check_columns,
    keyed_segments,
    message_schema,
    reconstruct_segments,
    wire_messages,
)
from shardwire.spark.schema import MESSAGE_FIELDS
from shardwire.spark.tally import Tally
from shardwire.spark.unwrap import UnwrapSegments, UnwrapStep, check_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Segments that a task holds at once, about; a quarter of it is settled whenever it is full.
WINDOW_BYTES = 64 << 20

_KIND = "shardwire_kind"
# The directories of the sink, which a reader of the whole sees as a column.
_FOUND = "found"
# The columns of a message that a segment's travel in, so that files of messages have the columns of messages alone.
_CARRIERS = {
    HASH: "entire_message_hash",
    SEND_ID: "send_id",
    PAYLOAD: "payload",
    TIMESTAMP: "first_timestamp",
    SENDER: "status",
    ERROR: "error",
}
_KINDS = _MESSAGE, _SEGMENT, _UNREAD = "message", "segment", "unread"
# Below the staging directory: what the first step wrote, and what becomes the sink.
_RAW, _RESULT = "raw", "result"
# Spark otherwise sorts every row, payload and all, by the directory it goes to.
_WRITERS_CONF = "spark.sql.maxConcurrentOutputFileWriters"


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What `reconstruct_archive` did.

    Attributes:
        messages: Messages by status.
        messages_local: Messages that were whole within a partition.
        payload_bytes: Bytes of the payloads that were reconstructed.
        bytes_shuffled: Bytes of segments that crossed the network in the second step, counted where they arrived. The
            identities of messages that are whole cross beside them, some 40 bytes each.
        seconds: Wall time.
    """

    messages: dict[str, int]
    messages_local: int
    payload_bytes: int
    bytes_shuffled: int
    seconds: float


def reconstruct_archive(
    spark: SparkSession,
    source: str | DataFrame,
    sink: str,
    config: SegmentationConfig | None = None,
    *,
    payload: str = "payload",
    by: Sequence[str] = (),
    key: str | None = None,
    include_payload: bool = True,
    unwrap: Sequence[UnwrapStep] = (),
    timestamp: str | None = None,
    sender: str | None = None,
) -> ArchiveReport:
    """Reconstructs an archive into Parquet files; the arguments and the columns are those of `reconstruct`.

    A message that is whole within a partition counts what that partition holds of it within a window of 64 MB: repeats
    that come later, or in another partition, are dropped and not counted.

    Args:
        spark: The session.
        source: Parquet files or a DataFrame, in about the order of arrival; it is read once.
        sink: A directory that must not exist yet.
        config: How the payloads were segmented.
        payload: As in `reconstruct`, like the arguments after it.

    Returns:
        What was found and what it cost.

    Raises:
        ConfigError: As `reconstruct` raises it, or the sink exists.
    """
    started = time.monotonic()
    config = config or SegmentationConfig()
    steps = check_steps(unwrap)
    df = spark.read.parquet(source) if isinstance(source, str) else source
    by = check_columns(df, by, (_KIND, _FOUND))
    if key is not None and steps:
        raise ConfigError(f"key is {key!r} and unwrap has {len(steps)} steps: a key needs bare segments; leave one out")
    unwrapping = None
    if key is not None:
        rows = keyed_segments(df, key, payload, by, timestamp, sender)
    else:
        rows = wire_messages(df, payload, by, timestamp, sender)
        unwrapping = UnwrapSegments(len(by), steps, config.wire_format, config.max_total_segments)
    absent = absent_columns(df, steps, timestamp, sender, is_keyed=key is not None) | {ERROR}
    archive = _Archive(config, by, include_payload, _Files(spark, sink))
    local, across = Tally.of(spark.sparkContext), Tally.of(spark.sparkContext)
    try:
        staged = archive.reconstruct_locally(rows, unwrapping, local)
        unread = archive.reconstruct_across(staged, absent, local["unread"], across)
        # Everything that reads the staged files comes before they are renamed.
        local = archive.settle_local(staged, local, repeated=across["repeated"] > 0)
        archive.files.publish()
    finally:
        archive.files.remove()
    messages = Counter(local.messages) + Counter(across.messages) + Counter(invalid=unread)
    return ArchiveReport(
        messages=dict(messages),
        messages_local=sum(local.messages.values()),
        payload_bytes=local["payload_bytes"] + across["payload_bytes"],
        bytes_shuffled=across["arrived_bytes"],
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True, slots=True)
class _Archive:
    """One run: what is asked for, and where its files are made."""

    config: SegmentationConfig
    by: list[str]
    include_payload: bool
    files: _Files

    def reconstruct_locally(self, rows: DataFrame, unwrapping: UnwrapSegments | None, tally: Tally) -> DataFrame:
        """Writes the messages that are whole within a partition, the segments of the others, and what is unread."""
        schema = StructType([*message_schema(rows, self.by).fields, StructField(_KIND, StringType())])
        types = _arrow_types(schema, self.by)
        local = _LocalReconstruction(self.config, unwrapping, len(self.by), self.include_payload, types, tally)
        spark = rows.sparkSession
        before = spark.conf.get(_WRITERS_CONF, None)
        spark.conf.set(_WRITERS_CONF, str(len(_KINDS)))
        try:
            map_in_arrow(rows, local, schema).write.partitionBy(_KIND).parquet(self.files.path(_RAW))
        finally:
            if before is None:
                spark.conf.unset(_WRITERS_CONF)
            else:
                spark.conf.set(_WRITERS_CONF, before)
        return spark.read.schema(schema).parquet(self.files.path(_RAW))

    def reconstruct_across(self, staged: DataFrame, absent: frozenset[str], unread_rows: int, tally: Tally) -> int:
        """Writes the messages that several partitions held together and a row (per `by`) for what is unread.

        Returns:
            The rows for what is unread.
        """
        segments = staged.where(F.col(_KIND) == _SEGMENT).select(
            *columns_of_names(self.by), *(F.col(carrier).alias(name) for name, carrier in _CARRIERS.items())
        )
        # Beside them the identities of the messages that are whole: what else came of one is a late repeat.
        whole = staged.where(F.col(_KIND) == _MESSAGE).select(
            *columns_of_names(self.by),
            F.col(_CARRIERS[HASH]).alias(HASH),
            F.col(_CARRIERS[SEND_ID]).alias(SEND_ID),
            F.lit(None).cast("binary").alias(PAYLOAD),
            F.lit(None).cast("bigint").alias(TIMESTAMP),
            *(F.lit(None).cast("string").alias(name) for name in (SENDER, ERROR)),
        )
        found = reconstruct_segments(
            segments.unionByName(whole), self.config, self.by, self.include_payload, absent, tally
        )
        rows = 0
        if unread_rows:
            unread = staged.where(F.col(_KIND) == _UNREAD)
            rows = unread.select(*columns_of_names(self.by)).distinct().count() if self.by else 1
            found = found.unionByName(_unread(unread, self.by))
        found.write.parquet(self.files.path(f"{_RESULT}/{_FOUND}=across"))
        return rows

    def settle_local(self, staged: DataFrame, tally: Tally, *, repeated: bool) -> Tally:
        """Puts the messages that are whole within a partition into the result; returns the tally of those it has."""
        target = f"{_RESULT}/{_FOUND}=local"
        if not repeated:
            # Where there are none there is no such directory.
            self.files.rename(f"{_RAW}/{_KIND}={_MESSAGE}", target)
            return tally
        once = staged.where(F.col(_KIND) == _MESSAGE).drop(_KIND)
        once.dropDuplicates(["entire_message_hash", "send_id", *self.by]).write.parquet(self.files.path(target))
        kept = staged.sparkSession.read.schema(once.schema).parquet(self.files.path(target))
        return Tally.of_messages(kept)


def _arrow_types(schema: StructType, by: Sequence[str]) -> dict[str, Any]:
    """The Arrow types of our columns, and a stand-in for those of `by`: they are handed on, never made."""
    types: dict[str, Any] = {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "array<string>": pa.list_(pa.string()),
    }
    return {
        field.name: pa.null() if field.name in by else types[field.dataType.simpleString()] for field in schema.fields
    }


def _unread(messages: DataFrame, by: list[str]) -> DataFrame:
    """One row (per `by`) for what no partition could read."""
    sums = {"segments_received", "duplicates", "conflicts"}
    kept: dict[str, Any] = {
        **{name: F.sum(name) for name in sums},
        "status": F.lit("invalid"),
        "first_timestamp": F.min("first_timestamp"),
        "last_timestamp": F.max("last_timestamp"),
        "senders": F.sort_array(F.array_distinct(F.flatten(F.collect_list("senders")))),
        "copies": F.lit(0),
        "error": F.min("error"),
    }
    columns = [
        kept.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in MESSAGE_FIELDS.fields
    ]
    return messages.groupBy(*columns_of_names(by)).agg(*columns)


class _Files:
    """The sink and the directory beside it where it is made, on whatever file system the sink is."""

    def __init__(self, spark: SparkSession, sink: str) -> None:
        try:
            jvm: Any = spark.sparkContext._jvm
        except PySparkAttributeError:
            raise ConfigError(
                "spark is a Spark Connect session, which does not reach the file system that the archive's files are "
                "renamed on: use a classic session, or reconstruct and write what it gives"
            ) from None
        self._hadoop = jvm.org.apache.hadoop.fs
        self._staging = f"{sink.rstrip('/')}.shardwire-staging"
        self._sink = self._hadoop.Path(sink)
        self._system = self._sink.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        if self._system.exists(self._sink):
            raise ConfigError(f"sink is {sink!r}, which exists: give a directory that does not")
        self.remove()

    def path(self, below: str) -> str:
        """A path below the staging directory."""
        return f"{self._staging}/{below}"

    def rename(self, source: str, target: str) -> bool:
        """Renames below the staging directory; False where there is no `source`."""
        return self._rename(source, self._hadoop.Path(self.path(target)))

    def publish(self) -> None:
        """Puts the result in the sink's place."""
        self._rename(_RESULT, self._sink)

    def remove(self) -> None:
        """Removes the staging directory where there is one."""
        self._system.delete(self._hadoop.Path(self._staging), True)

    def _rename(self, source: str, target: Any) -> bool:
        path = self._hadoop.Path(self.path(source))
        if not self._system.exists(path):
            return False
        if not self._system.rename(path, target):
            raise ShardwireError(f"{path.toString()} could not be renamed to {target.toString()}")
        return True


@dataclass(frozen=True, slots=True)
class _LocalReconstruction:
    """Runs on executors: a partition's rows in; its whole messages and the segments of the rest out."""

    config: SegmentationConfig
    unwrapping: UnwrapSegments | None
    by_count: int
    include_payload: bool
    types: dict[str, Any]
    tally: Tally

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        machine = _native.ArrowLocalReconstructor(
            parameters(self.config),
            by_count=self.by_count,
            include_payload=self.include_payload,
            window_bytes=WINDOW_BYTES,
            **limits_of(self.config),
        )
        if self.unwrapping is not None:
            batches = self.unwrapping(batches)
        for batch in batches:
            yield from self._messages(machine.push(batch))
            yield from self._leftovers(machine)
        yield from self._messages(machine.finish())
        yield from self._leftovers(machine)

    def _messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.tally.count_messages(batch)
            is_read = batch.column("entire_message_hash").is_valid()
            for kind, rows in ((_MESSAGE, is_read), (_UNREAD, pa.compute.invert(is_read))):
                # Not `true_count`: before pyarrow 16.1 it crashes on an array without nulls.
                count = rows.cast(pa.int8()).sum().as_py() or 0
                if count == batch.num_rows:
                    yield self._arranged(columns_of(batch), count, kind)
                elif count:
                    yield self._arranged(columns_of(batch.filter(rows)), count, kind)

    def _leftovers(self, machine: _native.ArrowLocalReconstructor) -> Iterator[pa.RecordBatch]:
        """Segments in the columns of messages: their own bytes, time and sender stand where a message's do."""
        batch = machine.poll_leftovers()
        if batch is not None:
            names = [*batch.schema.names[: self.by_count], *(_CARRIERS[name] for name in SEGMENT_COLUMNS)]
            yield self._arranged(dict(zip(names, batch.columns, strict=True)), batch.num_rows, _SEGMENT)

    def _arranged(self, columns: dict[str, Array], rows: int, kind: str) -> pa.RecordBatch:
        """The batch in the schema of every kind: what a kind does not have is null."""
        columns[_KIND] = pa.array([kind]).take(pa.array([0] * rows, type=pa.int32()))
        return batch_of({name: self._column(columns, name, rows) for name in self.types})

    def _column(self, columns: dict[str, Array], name: str, rows: int) -> Array:
        given = columns.get(name)
        return pa.nulls(rows, self.types[name]) if given is None else given
