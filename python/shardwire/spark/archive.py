"""Archives, local first: what is whole within a partition is reconstructed there; only the rest crosses the network.

Segments of one message lie near each other in an archive. Tasks of a first job reconstruct in a bounded window what
their partition holds whole and leave the segments of the rest, and a short row for each message that is whole; a second
job, the one with a shuffle, completes the rest and says which rows of the first are wrong. The archive is read once and
no payload that is whole anywhere crosses the network. All files come into being beside the sink, through Spark's commit
protocol, and take its place by one renaming: a retried or speculative task leaves nothing double, a failed job nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from shardwire import _native
from shardwire.archive.arrow import (
    ERROR,
    HASH,
    MESSAGE_SCHEMA,
    PAYLOAD,
    SEGMENT_COLUMNS,
    SEND_ID,
    SENDER,
    TIMESTAMP,
    WINDOW_BYTES,
    Array,
    batch_of,
    columns_of,
    limits_of,
    parameters,
)
from shardwire.archive.unwrap import UnwrapSegments, UnwrapStep, check_steps
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_bool, check_kind, check_text
from shardwire.spark.arrow_calls import map_in_arrow
from shardwire.spark.columns import check_batch, columns_of_names
from shardwire.spark.corrections import corrected
from shardwire.spark.files import SinkFiles
from shardwire.spark.reading import UNION_CONF, read_in_order, unreadable_told
from shardwire.spark.reconstruct import (
    Reconstruction,
    absent_columns,
    check_columns,
    keyed_segments,
    message_schema,
    segments_together,
    unwrapping_of,
    wire_messages,
)
from shardwire.spark.schema import MESSAGE_FIELDS
from shardwire.spark.task_counters import TaskCounters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameWriter

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
# What a leftover says in `ERROR` of a message that is whole in its partition.
_WHOLE = "whole"
_MESSAGE, _SEGMENT, _UNREAD, _CORRECTION = "message", "segment", "unread", "correction"
# Below the staging directory: what each job wrote, and what becomes the sink.
_LOCAL, _ACROSS, _RESULT = "raw", "across", "result"
_WRITERS = 3
_SETTINGS = {
    # Spark otherwise sorts every row, payload and all, by the directory it goes to.
    "spark.sql.maxConcurrentOutputFileWriters": str(_WRITERS),
    # From 4.1 on a union of single partitions is otherwise one partition itself.
    UNION_CONF: "false",
}
# A writer holds a row group, and a task has several writers.
_ROW_GROUP_CONF = "parquet.block.size"
_ROW_GROUP_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What `reconstruct_archive` did, in figures.

    Attributes:
        messages: Messages by status, and under "invalid" also the rows (per reason and `by`) for what is no segment.
        messages_local: Messages that were whole within a partition.
        payload_bytes: Bytes of the payloads that were reconstructed.
        bytes_shuffled: Bytes of segments that crossed the network in the second step, counted where they arrived.
            Beside them cross a row of some 40 bytes for each message that is whole in a partition, and 21 bytes for
            each data segment that it recovered.
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
    replace: bool = False,
) -> ArchiveReport:
    """Reconstructs an archive into Parquet files; arguments, columns and every status are those of `reconstruct`.

    The counts of a message that is whole within a partition (segments_received, duplicates, conflicts, copies, times
    and senders) are those of this partition, within a window of 64 MB: what comes later or lies elsewhere is not
    counted.

    Args:
        spark: The session.
        source: A DataFrame in about the order of arrival, or a path of Parquet files: those of a directory are taken in
            the order of their names, neighbours together. It is read once.
        sink: A directory outside the source that must not exist yet, unless `replace` is set.
        config: How the payloads were segmented.
        payload: As in `reconstruct`, like the arguments after it.
        replace: Whether a sink that exists is replaced, once everything is written.

    Returns:
        What was found and what it cost.

    Raises:
        ConfigError: As `reconstruct` raises it; the sink exists, or would be replaced and holds more than rows, or lies
            in the source, or cannot be written; the source is not there, has no Parquet files, has one that is damaged
            or another file beside them, or is a table of Delta or Iceberg, whose files are not all its rows.
    """
    started = time.monotonic()
    check_kind("config", config, SegmentationConfig)
    config = config or SegmentationConfig()
    steps = check_steps(unwrap, key)
    check_text("sink", sink)
    check_bool("replace", replace)
    check_bool("include_payload", include_payload)
    files = SinkFiles(spark, sink, [source] if isinstance(source, str) else (), replace=replace)
    if isinstance(source, str):
        files.refuse_table(source)
        df = read_in_order(spark, source)
    else:
        check_batch(source)
        df = source
    if replace:
        files.refuse_foreign(sink)
    by = check_columns(df, by, steps, (_KIND, _FOUND))
    unwrapping = None
    if key is not None:
        rows = keyed_segments(df, key, payload, by, timestamp, sender)
    else:
        rows = wire_messages(df, payload, by, timestamp, sender)
        unwrapping = unwrapping_of(df, config, by, steps)
    absent = absent_columns(df, steps, timestamp, sender, is_keyed=key is not None) - {ERROR, TIMESTAMP}
    archive = _Archive(config, by, include_payload, files)
    local, across = TaskCounters.of(spark.sparkContext), TaskCounters.of(spark.sparkContext)
    with files.staged():
        with unreadable_told(source):
            staged = archive.reconstruct_locally(rows, unwrapping, local)
        met = archive.reconstruct_across(staged, absent, across)
        unread = archive.count_unread(staged, local["unread"])
        # Everything that reads the staged files comes before they are renamed.
        if across["corrections"]:
            local = archive.settle_corrected(staged, met)
        else:
            archive.files.rename(f"{_LOCAL}/{_KIND}={_MESSAGE}", f"{_RESULT}/{_FOUND}=local")
        archive.files.rename(f"{_ACROSS}/{_KIND}={_MESSAGE}", f"{_RESULT}/{_FOUND}=across")
        if not archive.files.exists(files.path(_RESULT)):
            # A directory without a file has no columns to read.
            files.write(staged.limit(0).drop(_KIND).write, f"{_RESULT}/{_FOUND}=across")
        archive.files.publish(_RESULT)
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
    files: SinkFiles

    def reconstruct_locally(
        self, rows: DataFrame, unwrapping: UnwrapSegments | None, counters: TaskCounters
    ) -> DataFrame:
        """Writes the messages that are whole within a partition, what is left for the others, and what is unread."""
        schema = StructType([*message_schema(rows, self.by).fields, StructField(_KIND, StringType())])
        kinds = _Kinds(len(self.by), tuple(schema.names))
        local = _LocalReconstruction(self.config, unwrapping, self.include_payload, kinds, counters)
        return self._written(map_in_arrow(rows, local, schema), _LOCAL, "reconstruct what is whole within a partition")

    def reconstruct_across(self, staged: DataFrame, absent: frozenset[str], counters: TaskCounters) -> DataFrame:
        """Writes the messages that several partitions hold together, and what of the first job is to be corrected."""
        segments = staged.where(F.col(_KIND) == _SEGMENT).select(
            *columns_of_names(self.by), *(F.col(carrier).alias(name) for name, carrier in _CARRIERS.items())
        )
        together = segments_together(segments.drop(*absent), self.by)
        machine = Reconstruction(self.config, len(self.by), self.include_payload, absent)
        kinds = _Kinds(len(self.by), tuple(staged.schema.names))
        met = map_in_arrow(together, _Meeting(machine, kinds, counters), staged.schema)
        return self._written(met, _ACROSS, "reconstruct what several partitions hold together")

    def count_unread(self, staged: DataFrame, rows: int) -> int:
        """Writes a row (per reason and `by`) for what is no segment; returns how many there are."""
        if not rows:
            return 0
        counted = _unread(staged.where(F.col(_KIND) == _UNREAD), self.by)
        target = f"{_RESULT}/{_FOUND}=unread"
        self.files.write(counted.coalesce(1).write, target)
        return staged.sparkSession.read.schema(counted.schema).parquet(self.files.path(target)).count()

    def settle_corrected(self, staged: DataFrame, met: DataFrame) -> TaskCounters:
        """Puts the messages that are whole within a partition into the result, each once and with its status."""
        source, target = f"{_LOCAL}/{_KIND}={_MESSAGE}", f"{_RESULT}/{_FOUND}=local"
        corrections = met.where(F.col(_KIND) == _CORRECTION)
        schema = StructType([field for field in staged.schema.fields if field.name != _KIND])
        touched = corrected(corrections, self.by, self.files, source, schema, target)
        for name in self.files.names(source):
            if name not in touched:
                self.files.rename(f"{source}/{name}", f"{target}/{name}")
        return TaskCounters.of_messages(staged.sparkSession.read.schema(schema).parquet(self.files.path(target)))

    def _written(self, rows: DataFrame, name: str, description: str) -> DataFrame:
        """Writes the rows into a directory a kind, and reads them from there."""
        spark = rows.sparkSession
        before = {setting: spark.conf.get(setting, None) for setting in _SETTINGS}
        spark.sparkContext.setJobDescription(f"shardwire: {description}")
        try:
            for setting, value in _SETTINGS.items():
                spark.conf.set(setting, value)
            self.files.write(self._writer(rows).partitionBy(_KIND), name)
        finally:
            spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]  # takes the description away
            for setting, old in before.items():
                if old is None:
                    spark.conf.unset(setting)
                else:
                    spark.conf.set(setting, old)
        return spark.read.schema(rows.schema).parquet(self.files.path(name))

    def _writer(self, rows: DataFrame) -> DataFrameWriter:
        if rows.sparkSession.conf.get(_ROW_GROUP_CONF, None) is not None:
            return rows.write
        return rows.write.option(_ROW_GROUP_CONF, str(_ROW_GROUP_BYTES))


def _unread(rows: DataFrame, by: list[str]) -> DataFrame:
    """One row (per reason and `by`) for what no partition could read."""
    sums = {"segments_received", "duplicates", "conflicts"}
    kept: dict[str, Any] = {
        **{name: F.sum(name) for name in sums},
        "status": F.lit("invalid"),
        "first_timestamp": F.min("first_timestamp"),
        "last_timestamp": F.max("last_timestamp"),
        "senders": F.slice(F.sort_array(F.array_distinct(F.flatten(F.collect_set("senders")))), 1, _native.SENDERS_MAX),
        "copies": F.lit(0),
        "error": F.first("error"),
    }
    columns = [
        kept.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in MESSAGE_FIELDS.fields
    ]
    reason = F.col("error").alias("shardwire_reason")
    return rows.groupBy(*columns_of_names(by), reason).agg(*columns).drop("shardwire_reason")


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Rows of several kinds in one schema, that of messages and `_KIND`: what a kind does not have is null."""

    by_count: int
    names: tuple[str, ...]

    def messages(self, batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
        """Messages as they are."""
        return self._arranged(columns_of(batch), batch.num_rows, kind)

    def segments(self, batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
        """Segments in the columns of messages: their own bytes, time and sender stand where a message's do."""
        names = [*batch.schema.names[: self.by_count], *(_CARRIERS[name] for name in SEGMENT_COLUMNS)]
        return self._arranged(dict(zip(names, batch.columns, strict=True)), batch.num_rows, kind)

    def _arranged(self, columns: dict[str, Array], rows: int, kind: str) -> pa.RecordBatch:
        columns[_KIND] = pa.array([kind]).take(pa.array([0] * rows, type=pa.int32()))
        return batch_of({name: self._column(columns, name, rows) for name in self.names})

    def _column(self, columns: dict[str, Array], name: str, rows: int) -> Array:
        given = columns.get(name)
        return pa.nulls(rows, MESSAGE_SCHEMA.field(name).type) if given is None else given


@dataclass(frozen=True, slots=True)
class _LocalReconstruction:
    """Runs on executors: a partition's rows in; its whole messages and what is left for the others out."""

    config: SegmentationConfig
    unwrapping: UnwrapSegments | None
    include_payload: bool
    kinds: _Kinds
    counters: TaskCounters

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        machine = _native.ArrowLocalReconstructor(
            parameters(self.config),
            by_count=self.kinds.by_count,
            include_payload=self.include_payload,
            window_bytes=WINDOW_BYTES,
            partition=context.partitionId() if context is not None else 0,
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
            self.counters.count_messages(batch)
            unread_rows = batch.column("entire_message_hash").null_count
            if not unread_rows:
                yield self.kinds.messages(batch, _MESSAGE)
                continue
            is_read = batch.column("entire_message_hash").is_valid()
            if unread_rows < batch.num_rows:
                yield self.kinds.messages(batch.filter(is_read), _MESSAGE)
            yield self.kinds.messages(batch.filter(pa.compute.invert(is_read)), _UNREAD)

    def _leftovers(self, machine: _native.ArrowLocalReconstructor) -> Iterator[pa.RecordBatch]:
        batch = machine.poll_leftovers()
        if batch is not None:
            yield self.kinds.segments(batch, _SEGMENT)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Runs on executors: what the partitions left, sorted; messages and corrections out."""

    reconstruction: Reconstruction
    kinds: _Kinds
    counters: TaskCounters

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        machine = self.reconstruction.machine()
        for batch in batches:
            # Of a segment it may say how often it came.
            is_whole: Any = pa.compute.equal(cast("Any", batch.column(ERROR)), cast("Any", _WHOLE))
            is_segment = pa.compute.invert(is_whole.fill_null(False))
            self.counters.count_arrived(batch.column(PAYLOAD).filter(is_segment))
            yield from self._made(machine.push(self.reconstruction.completed(batch)), machine)
        yield from self._made(machine.finish(), machine)

    def _made(
        self, messages: Iterable[pa.RecordBatch], machine: _native.ArrowReconstructor
    ) -> Iterator[pa.RecordBatch]:
        for batch in messages:
            self.counters.count_messages(batch)
            yield self.kinds.messages(batch, _MESSAGE)
        corrections = machine.poll_corrections()
        if corrections is not None:
            self.counters.add({"corrections": corrections.num_rows})
            yield self.kinds.segments(corrections, _CORRECTION)
