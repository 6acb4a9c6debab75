"""Archives, local first: what is whole within a partition never crosses the network.

Segments of one message lie near each other in an archive. Each task therefore passes once over its own partition as it
lies there, with a bounded window of open messages, and writes those that are whole; only the segments of the rest meet
in a second step. Files are written beside the sink through Spark's commit
protocol and take its place by one renaming: a retried or speculative task leaves nothing double, a failed job nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkAttributeError
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from shardwire import _native
from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError, ShardwireError
from shardwire.spark.native import Array, batch_of, limits_of, map_in_arrow, parameters
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
from shardwire.spark.unwrap import UnwrapSegments, UnwrapStep, check_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Segments that a task holds at once, about; a quarter of it is settled whenever it is full.
WINDOW_BYTES = 64 << 20

_KIND = "shardwire_kind"
# The columns of a message that a segment's travel in, so that files of messages have the columns of messages alone.
_CARRIERS = {
    HASH: "entire_message_hash",
    SEND_ID: "send_id",
    PAYLOAD: "payload",
    TIMESTAMP: "first_timestamp",
    SENDER: "status",
    ERROR: "error",
}
_MESSAGE, _SEGMENT = "message", "segment"
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
        bytes_shuffled: Bytes of segments that crossed the network in the second step, counted where they arrived.
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
    by = check_columns(df, by)
    if key is not None and steps:
        raise ConfigError(f"key is {key!r} and unwrap has {len(steps)} steps: a key needs bare segments; leave one out")
    unwrapping = None
    if key is not None:
        rows = keyed_segments(df, key, payload, by, timestamp, sender)
    else:
        rows = wire_messages(df, payload, by, timestamp, sender)
        unwrapping = UnwrapSegments(len(by), steps, config.wire_format, config.max_total_segments)
    absent = absent_columns(df, steps, timestamp, sender, is_keyed=key is not None) | {ERROR}
    files = _Files(spark, sink)
    try:
        staged = _reconstruct_locally(rows, unwrapping, config, by, include_payload, files)
        bytes_shuffled = _reconstruct_across(staged, config, by, include_payload, absent, files)
        files.publish()
    finally:
        files.remove()
    return _report(spark, sink, bytes_shuffled, time.monotonic() - started)


def _reconstruct_locally(
    rows: DataFrame,
    unwrapping: UnwrapSegments | None,
    config: SegmentationConfig,
    by: list[str],
    include_payload: bool,
    files: _Files,
) -> _Staged:
    """Writes the messages that are whole within a partition, and the segments of the others."""
    messages = message_schema(rows, by)
    both = StructType([*messages.fields, StructField(_KIND, StringType())])
    local = _LocalReconstruction(config, unwrapping, len(by), include_payload, _arrow_types(both, by))
    found = map_in_arrow(rows, local, both)
    spark = rows.sparkSession
    before = spark.conf.get(_WRITERS_CONF, None)
    spark.conf.set(_WRITERS_CONF, "2")
    try:
        found.write.partitionBy(_KIND).parquet(files.path(_RAW))
    finally:
        if before is None:
            spark.conf.unset(_WRITERS_CONF)
        else:
            spark.conf.set(_WRITERS_CONF, before)
    staged = spark.read.schema(both).parquet(files.path(_RAW))
    return _Staged(
        messages=staged.where(F.col(_KIND) == _MESSAGE).select(*messages.fieldNames()),
        segments=staged.where(F.col(_KIND) == _SEGMENT).select(
            *by, *(F.col(carrier).alias(name) for name, carrier in _CARRIERS.items())
        ),
    )


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


def _reconstruct_across(
    staged: _Staged,
    config: SegmentationConfig,
    by: list[str],
    include_payload: bool,
    absent: frozenset[str],
    files: _Files,
) -> int:
    """Writes the messages that several partitions held together, settles the local ones; returns the bytes shuffled."""
    identity = ["entire_message_hash", "send_id", *by]
    local = staged.messages.where(F.col("entire_message_hash").isNotNull())
    whole = local.select(*(F.col(name).alias(f"whole_{name}") for name in identity)).distinct()
    same = [
        F.col(ours).eqNullSafe(F.col(f"whole_{theirs}"))
        for ours, theirs in zip([HASH, SEND_ID, *by], identity, strict=True)
    ]
    # Segments of a message that another partition held whole are late repeats.
    missing = staged.segments.join(whole, same, "left_anti")
    # Counted where they arrive, by the tasks whose result stands: Spark adds up each of those once.
    crossed_bytes = staged.messages.sparkSession.sparkContext.accumulator(0)
    across = reconstruct_segments(missing, config, by, include_payload, absent, crossed_bytes)
    across.unionByName(_unread(staged.messages, by)).write.parquet(files.path(f"{_RESULT}/found=across"))
    # Everything that reads the staged files comes before they are renamed.
    is_read = F.col("entire_message_hash").isNotNull()
    counts = staged.messages.groupBy(*identity).agg(F.count("*").alias("times"))
    repeated, unread = counts.agg(F.bool_or(is_read & (F.col("times") > 1)), F.bool_or(~is_read)).collect()[0]
    kept = files.path(f"{_RESULT}/found=local")
    if repeated:
        local.dropDuplicates(identity).write.parquet(kept)
    elif unread or not files.rename(f"{_RAW}/{_KIND}={_MESSAGE}", f"{_RESULT}/found=local"):
        local.write.parquet(kept)
    return int(crossed_bytes.value)


def _unread(messages: DataFrame, by: list[str]) -> DataFrame:
    """One row (per `by`) for what no partition could read."""
    counted = messages.where(F.col("entire_message_hash").isNull())
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
    # Without `by` an aggregation of no rows has a row all the same.
    return counted.groupBy(*by).agg(*columns).where(F.col("segments_received").isNotNull())


def _report(spark: SparkSession, sink: str, bytes_shuffled: int, seconds: float) -> ArchiveReport:
    found = spark.read.parquet(sink)
    rows = found.groupBy("found", "status").agg(F.count("*"), F.coalesce(F.sum("payload_length"), F.lit(0))).collect()
    messages: dict[str, int] = {}
    for _, status, count, _ in rows:
        messages[status] = messages.get(status, 0) + count
    return ArchiveReport(
        messages=messages,
        messages_local=sum(count for place, _, count, _ in rows if place == "local"),
        payload_bytes=sum(size for _, _, _, size in rows),
        bytes_shuffled=bytes_shuffled,
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class _Staged:
    """What the first step wrote."""

    messages: DataFrame
    segments: DataFrame


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
            yield from map(self._message, machine.push(batch))
            yield from self._leftovers(machine)
        yield from map(self._message, machine.finish())
        yield from self._leftovers(machine)

    def _message(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._arranged(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows, _MESSAGE)

    def _leftovers(self, machine: _native.ArrowLocalReconstructor) -> Iterator[pa.RecordBatch]:
        batch = machine.poll_leftovers()
        if batch is not None:
            names = [*batch.schema.names[: self.by_count], *(_CARRIERS[name] for name in SEGMENT_COLUMNS)]
            yield self._arranged(dict(zip(names, batch.columns, strict=True)), batch.num_rows, _SEGMENT)

    def _arranged(self, columns: dict[str, Array], rows: int, kind: str) -> pa.RecordBatch:
        """The batch in the schema of both kinds: what a kind does not have is null."""
        columns[_KIND] = pa.array([kind]).take(pa.array([0] * rows, type=pa.int32()))
        return batch_of({name: self._column(columns, name, rows) for name in self.types})

    def _column(self, columns: dict[str, Array], name: str, rows: int) -> Array:
        given = columns.get(name)
        return pa.nulls(rows, self.types[name]) if given is None else given
