"""Messages from a stream of segments: Structured Streaming with the state of unfinished messages in RocksDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from shardwire.archive.arrow import HASH, SEGMENT_COLUMNS, SEND_ID, TIMESTAMP
from shardwire.archive.unwrap import UnwrapStep, check_steps
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_bool, check_integer, check_kind
from shardwire.errors import ConfigError, MissingLibraryError
from shardwire.spark import versions
from shardwire.spark.columns import (
    check_data_frame,
    columns_of_names,
    from_state,
    in_state,
    name_in_state,
    nanoseconds_column,
)
from shardwire.spark.reconstruct import (
    check_columns,
    keyed_segments,
    message_schema,
    unwrapped_segments,
)
from shardwire.spark.schema import MESSAGE_FIELDS
from shardwire.spark.stream_state import BUCKET, BUCKETS, EVENT_TIME, StreamReconstruction

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_STATE_STORE_CONF = "spark.sql.streaming.stateStore.providerClass"
# How Spark marks the column of a watermark.
_WATERMARK = "spark.watermarkDelayMs"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def reconstruct_stream(
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
    watermark_delay_ms: int = 60_000,
    remember_ms: int = 3_600_000,
) -> DataFrame:
    """Reconstructs messages from a streaming DataFrame of segments or of the wire messages around them. Lazy.

    The columns are those of `reconstruct`. A message has its row in the micro-batch that brings its last needed
    segment, and its status is that of this moment; one that stays short of segments has its row, "incomplete" or
    "invalid", once the watermark is `config.limits.timeout_ms` past its last new segment. Rows that are no segment
    are counted in one row per reason (and `by`) a micro-batch. Written through a sink that commits by batch
    (Parquet, Delta), every row comes out once, also after the driver was killed: state, timers and offsets come
    back from the checkpoint.

    Time is event time: the watermark follows the column `timestamp` of the rows, never what messages claim, and no row
    counts as later than its micro-batch. A row that arrives behind the watermark is used like any other.

    State is bounded by message and by time. One message holds at most `limits.buffered_bytes_per_sender_max` bytes and
    `limits.candidates_per_slot_max` rivals a place; what is beyond is counted and let go. An unfinished message is held
    for `limits.timeout_ms` and a finished one is remembered, without its bytes, for `remember_ms`; each new segment,
    respectively each repeat, begins that time anew. A repeat after it opens the message again.

    Sets the session's state store to RocksDB, which the operator needs.

    Args:
        df: A streaming DataFrame, one wire message a row: Parquet files, Kafka (`payload="value"`), `waku-store`.
        config: As in `reconstruct`, like the arguments after it; `by` takes neither arrays nor intervals.
        timestamp: A column of nanoseconds (bigint) or a timestamp column, of UTC where it has no zone, with the time of
            arrival. None: `timestamp` where there is one, otherwise the time of the micro-batch. A null counts as the
            latter too.
        watermark_delay_ms: How far the watermark stays behind the latest time seen.
        remember_ms: How long the repeats of a finished message are dropped.

    Returns:
        A streaming DataFrame for output mode "append", a row a message.

    Raises:
        ConfigError: As `reconstruct` raises it; `df` is not streaming, or has a watermark; a time below 0; the library
            protobuf is missing; PySpark is older than 4.0.
    """
    check_kind("config", config, SegmentationConfig)
    check_data_frame(df)
    check_bool("include_payload", include_payload)
    config = config or SegmentationConfig()
    versions.require_state()
    _require_protobuf()
    if not df.isStreaming:
        raise ConfigError("df is not streaming: read it with spark.readStream, or use reconstruct")
    for field in df.schema.fields:
        if _WATERMARK in field.metadata:
            raise ConfigError(
                f"df has a watermark on the column {field.name!r}, and Spark takes no second one: leave withWatermark "
                "out and give watermark_delay_ms"
            )
    for name, value in (("watermark_delay_ms", watermark_delay_ms), ("remember_ms", remember_ms)):
        check_integer(name, value, 0, (1 << 53) - 1)
    steps = check_steps(unwrap, key)
    by = check_columns(df, by, steps, (EVENT_TIME, BUCKET), in_state=True)
    timed = df.withColumn(EVENT_TIME, _event_time(df, timestamp)).withWatermark(
        EVENT_TIME, f"{watermark_delay_ms} milliseconds"
    )
    carried = [*by, EVENT_TIME]
    if key is not None:
        segments = keyed_segments(timed, key, payload, carried, timestamp, sender)
    else:
        segments = unwrapped_segments(timed, config, payload, carried, steps, timestamp, sender)
    df.sparkSession.conf.set(_STATE_STORE_CONF, _ROCKSDB)
    if not versions.HAS_STATE_OF_ROWS:
        segments = segments.withColumn(TIMESTAMP, F.col(TIMESTAMP).cast("string"))
    # Without its mark the column drives the watermark, but Spark drops no row for being behind it.
    moment = F.unix_millis(F.col(EVENT_TIME)).alias(EVENT_TIME, metadata={})
    renamed = [in_state(name, segments.schema[name].dataType) for name in by]
    kept = [name_in_state(name, segments.schema[name].dataType) for name in by]
    bucket = F.pmod(F.xxhash64(HASH, SEND_ID), F.lit(BUCKETS)).cast("int").alias(BUCKET)
    arrivals = segments.select(*renamed, *SEGMENT_COLUMNS, moment, bucket)
    grouped = arrivals.groupBy(*columns_of_names((*kept, BUCKET)))
    asked = (config, tuple(kept), include_payload, remember_ms)
    schema = message_schema(arrivals, kept)
    if versions.HAS_STATE_OF_ROWS:
        messages = grouped.transformWithState(StreamReconstruction(*asked), schema, "append", "EventTime")
    else:
        from shardwire.spark.stream_frames import StreamFrames

        messages = grouped.transformWithStateInPandas(StreamFrames(*asked), schema, "append", "EventTime")
    if kept == by:
        return messages
    return messages.select(*map(from_state, kept, by), *MESSAGE_FIELDS.names)


def _event_time(df: DataFrame, timestamp: str | None) -> Column:
    """When a row arrived, at the latest now: a time from the future would end every message at once."""
    now = F.current_timestamp()
    arrived = F.timestamp_micros(F.floor(nanoseconds_column(df, timestamp) / 1000))
    return F.coalesce(F.least(arrived, now), now)


def _require_protobuf() -> None:
    try:
        import google.protobuf  # noqa: F401
    except ImportError:
        raise MissingLibraryError(
            "reconstruct_stream needs the library 'protobuf': pip install 'shardwire[spark]'"
        ) from None
