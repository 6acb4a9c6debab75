"""Messages from segments: one row a message, whatever became of it.

The plan: wire messages are unwrapped where they lie; segments of one message meet by hash in one partition, sorted, so
that a native state machine passes over them once with a bounded window of messages. Nothing is collected on the driver,
no group is held whole by Python, and a retried task gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from shardwire import _native
from shardwire.archive.arrow import (
    ERROR,
    HASH,
    HASH_BYTES,
    PAYLOAD,
    SEGMENT_COLUMNS,
    SEND_ID,
    SENDER,
    TIMESTAMP,
    batch_of,
    limits_of,
    parameters,
)
from shardwire.archive.unwrap import TOPIC, UnwrapSegments, UnwrapStep, check_steps
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_bool, check_kind, check_list, check_text
from shardwire.errors import ConfigError
from shardwire.quoting import listed
from shardwire.spark.arrow_calls import finished, flat, map_in_arrow
from shardwire.spark.columns import (
    check_batch,
    check_data_frame,
    check_keeps_apart,
    check_named,
    clashing,
    columns_of_names,
    floats_apart,
    nanoseconds_column,
    typed_column,
)
from shardwire.spark.schema import MESSAGE_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SEGMENT_TYPES = (BinaryType(), StringType(), BinaryType(), LongType(), StringType(), StringType())


def reconstruct(
    df: DataFrame,
    config: SegmentationConfig | None = None,
    *,
    payload: str = "payload",
    by: Sequence[str] = (),
    key: str | None = None,
    include_payload: bool = True,
    unwrap: Sequence[UnwrapStep] = (),
    timestamp: str | None = None,
    sender: str | None = None,
) -> DataFrame:
    """Reconstructs messages from a DataFrame of segments or of the wire messages around them. Lazy.

    A row a send where SDS message ids tell sends apart ("<32 hex>.<ordinal>"), otherwise a row a hash with `copies`.
    Its columns are those of `by`, then: entire_message_hash, payload (null where `include_payload` is False or the
    message is not there), payload_length, status, data_segment_count, parity_segment_count, segments_received (places
    of which at least one segment came), duplicates, conflicts (rivals of a segment that came first), first_timestamp,
    last_timestamp (ns), senders (up to 64, sorted), erasure_code (where parity was needed), send_id, copies,
    data_segments_recovered, error. The status is

    * "complete": every data segment came, in whatever company, and the payload hashes to what they claim;
    * "recovered": it does after parity replaced some of them;
    * "incomplete": too few segments came;
    * "invalid": no choice among the segments hashes to it. Rows that are no segment at all are counted in
      `segments_received` of one row per `error` (and `by`), without hash and send id; there are few reasons.

    A payload that arrives padded, with duplicates or among forged segments is found as `Reassembler` finds it. One
    message holds at most `limits.buffered_bytes_per_sender_max` bytes and `limits.candidates_per_slot_max` rivals a
    place; what is beyond is counted and let go.

    Args:
        df: One wire message a row.
        config: How the payloads were segmented.
        payload: The column with the message's bytes (binary); rows where it is null are left out.
        by: Columns that keep messages apart beside their hash, of any type without maps, variants, intervals of months
            and collations. "content_topic" where `df` has no such column and `unwrap` names "waku": the one that the
            Waku messages name.
        key: A binary column that holds `entire_message_hash` already, which spares a pass over the payloads.
        include_payload: Whether the payloads themselves are wanted.
        unwrap: What is around the segments, outermost first: "waku", `decrypt(...)`, "sds" or "sds-nim".
        timestamp: A column of nanoseconds (bigint) or a timestamp column, of UTC where it has no
            zone. None: `timestamp` where there is one. A Waku message's own timestamp goes before it.
        sender: A string column with who sent the row; an SDS message's own sender goes before it.

    Returns:
        A lazy DataFrame, a row a message.

    Raises:
        ConfigError: A column is missing, has another type or clashes with one of ours; an unknown step; `key` together
            with `unwrap`; `df` is a stream.
    """
    check_kind("config", config, SegmentationConfig)
    check_bool("include_payload", include_payload)
    config = config or SegmentationConfig()
    check_batch(df)
    steps = check_steps(unwrap, key)
    by = check_columns(df, by, steps)
    absent = absent_columns(df, steps, timestamp, sender, is_keyed=key is not None)
    if key is not None:
        segments = keyed_segments(df, key, payload, by, timestamp, sender).drop(*absent)
    else:
        segments = unwrapped_segments(df, config, payload, by, steps, timestamp, sender, absent)
    return reconstruct_segments(segments, config, by, include_payload, absent)


def check_columns(
    df: DataFrame,
    by: Sequence[str],
    steps: Sequence[UnwrapStep],
    also_taken: Iterable[str] = (),
    *,
    in_state: bool = False,
) -> list[str]:
    """The columns of `by` as a list.

    Args:
        also_taken: Further names that they must not have.
        in_state: Whether they become keys of a stream's state.

    Raises:
        ConfigError: A column is missing, has a name that the result needs or a type that keeps nothing apart.
    """
    check_data_frame(df)
    check_list("by", by, "columns")
    taken = {*MESSAGE_FIELDS.names, *SEGMENT_COLUMNS, *also_taken}
    for name in by:
        check_text("a column of by", name)
        if name in df.columns or name != TOPIC or "waku" not in steps:
            check_named(df, name, "by")
            check_keeps_apart(name, df.schema[name].dataType, in_state=in_state)
        if clashing(df, [name], taken):
            raise ConfigError(f"by names the column {name!r}, which the result needs: rename it before")
    if any(len(clashing(df, by, [name])) > 1 for name in by):
        raise ConfigError(f"by names a column twice: {listed(by)}")
    return list(by)


def keyed_segments(
    df: DataFrame, key: str, payload: str, by: Sequence[str], timestamp: str | None, sender: str | None
) -> DataFrame:
    """Bare segments whose hash is a column already."""
    wanted = typed_column(df, payload, "payload", "binary")
    hashes = typed_column(df, key, "key", "binary")
    return df.where(wanted.isNotNull()).select(
        *columns_of_names(by),
        # What is no hash is one row, whatever it is.
        F.when(F.length(hashes) == HASH_BYTES, hashes).alias(HASH),
        F.lit(None).cast("string").alias(SEND_ID),
        wanted.alias(PAYLOAD),
        nanoseconds_column(df, timestamp).alias(TIMESTAMP),
        _sender(df, sender).alias(SENDER),
        F.lit(None).cast("string").alias(ERROR),
    )


def unwrapped_segments(
    df: DataFrame,
    config: SegmentationConfig,
    payload: str,
    by: Sequence[str],
    steps: tuple[UnwrapStep, ...],
    timestamp: str | None,
    sender: str | None,
    absent: frozenset[str] = frozenset(),
) -> DataFrame:
    """Segments with their hash, out of what wraps them, without the absent columns: one pass over the payloads where
    they lie."""
    messages = wire_messages(df, payload, by, timestamp, sender)
    schema = segment_schema(df, by)
    kept = StructType([field for field in schema.fields if field.name not in absent])
    unwrapping = _Unwrapping(unwrapping_of(df, config, by, steps), tuple(kept.names))
    return map_in_arrow(messages, unwrapping, kept)


def unwrapping_of(
    df: DataFrame, config: SegmentationConfig, by: Sequence[str], steps: tuple[UnwrapStep, ...]
) -> UnwrapSegments:
    """What runs over the rows of `wire_messages`."""
    topic_from_waku = TOPIC in by and TOPIC not in df.columns
    return UnwrapSegments(tuple(by), steps, config.wire_format, config.max_total_segments, topic_from_waku)


def wire_messages(
    df: DataFrame, payload: str, by: Sequence[str], timestamp: str | None, sender: str | None
) -> DataFrame:
    """What `UnwrapSegments` takes in: of time and sender, which Spark writes row by row, what the rows have."""
    columns = [
        *columns_of_names(name for name in by if name in df.columns),
        typed_column(df, payload, "payload", "binary").alias(PAYLOAD),
    ]
    if timestamp is not None or "timestamp" in df.columns:
        columns.append(nanoseconds_column(df, timestamp).alias(TIMESTAMP))
    if sender is not None:
        columns.append(_sender(df, sender).alias(SENDER))
    return df.select(*columns)


def absent_columns(
    df: DataFrame, steps: Sequence[UnwrapStep], timestamp: str | None, sender: str | None, *, is_keyed: bool
) -> frozenset[str]:
    """Columns of segments that are null in every row: they need not cross the network."""
    has_sds = "sds" in steps or "sds-nim" in steps
    present = {HASH, PAYLOAD}
    if not is_keyed:
        present.add(ERROR)
    if has_sds:
        present.add(SEND_ID)
    if sender is not None or has_sds:
        present.add(SENDER)
    if timestamp is not None or "timestamp" in df.columns or "waku" in steps:
        present.add(TIMESTAMP)
    return frozenset(SEGMENT_COLUMNS) - present


def segment_schema(df: DataFrame, by: Sequence[str]) -> StructType:
    """The columns of `by` and of a segment on its way to the state machine."""
    ours = [StructField(name, kind) for name, kind in zip(SEGMENT_COLUMNS, _SEGMENT_TYPES, strict=True)]
    return StructType([*by_fields(df, by), *ours])


def by_fields(df: DataFrame, by: Sequence[str]) -> list[StructField]:
    """The columns of `by`: those of the rows, and the topic that Waku messages name."""
    return [df.schema[name] if name in df.columns else StructField(name, StringType()) for name in by]


def message_schema(segments: DataFrame, by: Sequence[str]) -> StructType:
    """The columns of `by` and of a message."""
    return StructType([*by_fields(segments, by), *MESSAGE_FIELDS.fields])


def reconstruct_segments(
    segments: DataFrame,
    config: SegmentationConfig,
    by: Sequence[str],
    include_payload: bool,
    absent: frozenset[str] = frozenset(),
) -> DataFrame:
    """The step across the network: segments of one message, without the absent columns, meet, sorted, and become its
    row."""
    together = segments_together(segments, by)
    return map_in_arrow(
        together, Reconstruction(config, len(by), include_payload, absent), message_schema(segments, by)
    )


def segments_together(segments: DataFrame, by: Sequence[str]) -> DataFrame:
    """Segments of one message next to each other in one partition; of what is none, those of one reason."""
    # The hash goes first: its first bytes decide nearly every comparison of the sort.
    keys = columns_of_names(name for name in (HASH, SEND_ID, *by) if name in segments.columns)
    reasons = columns_of_names(name for name in (ERROR,) if name in segments.columns)
    return segments.repartition(*keys).sortWithinPartitions(*keys, *floats_apart(segments, by), *reasons)


@dataclass(frozen=True, slots=True)
class _Unwrapping:
    """Runs on executors: wire messages in, those columns of their segments out that anything stands in.

    What is left out on Java's side is read out of the batch first, row by row.
    """

    unwrap: UnwrapSegments
    kept: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self.unwrap(batches):
            yield batch.select(list(self.kept))


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """Runs on executors: sorted segments in, messages out; a batch is one native call.

    A batch has the `by` columns, then those of `SEGMENT_COLUMNS` without the absent ones.
    """

    config: SegmentationConfig
    by_count: int
    include_payload: bool
    absent: frozenset[str] = frozenset()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        machine = self.machine()
        return chain(flat(machine.push(self.completed(batch)) for batch in batches), finished(machine))

    def machine(self) -> _native.ArrowReconstructor:
        """What puts messages together."""
        return _native.ArrowReconstructor(
            parameters(self.config),
            by_count=self.by_count,
            include_payload=self.include_payload,
            **limits_of(self.config),
        )

    def completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns that did not cross the network."""
        if not self.absent:
            return batch
        nothing = pa.nulls(batch.num_rows)
        columns = {name: batch.column(place) for place, name in enumerate(batch.schema.names[: self.by_count])}
        for name in SEGMENT_COLUMNS:
            columns[name] = nothing if name in self.absent else batch.column(name)
        return batch_of(columns)


def _sender(df: DataFrame, name: str | None) -> Column:
    return F.lit(None).cast("string") if name is None else typed_column(df, name, "sender", "string")
