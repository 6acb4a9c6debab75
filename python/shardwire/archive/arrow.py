"""Arrow batches for the native calls, and a configuration in its native form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

from shardwire import _native
from shardwire.config import SegmentationConfig

# Spark reads the annotations of a UDF at run time, where pyarrow's classes take no parameters.
if TYPE_CHECKING:
    Array: TypeAlias = pa.Array[Any]
else:
    Array = pa.Array

# What the state machines take in, after the columns of `by`; the prefix keeps clear of the user's own names.
SEGMENT_COLUMNS = tuple(f"shardwire_{name}" for name in ("hash", "send_id", "payload", "timestamp", "sender", "error"))
HASH, SEND_ID, PAYLOAD, TIMESTAMP, SENDER, ERROR = SEGMENT_COLUMNS

# Of a hash: nothing else is a message's key.
HASH_BYTES = 32

# What they give, after the columns of `by`.
_FIELDS: list[pa.Field[Any]] = [
    pa.field("entire_message_hash", pa.binary()),
    pa.field("payload", pa.binary()),
    pa.field("payload_length", pa.int64()),
    pa.field("status", pa.string()),
    pa.field("data_segment_count", pa.int32()),
    pa.field("parity_segment_count", pa.int32()),
    pa.field("segments_received", pa.int64()),
    pa.field("duplicates", pa.int64()),
    pa.field("conflicts", pa.int64()),
    pa.field("first_timestamp", pa.int64()),
    pa.field("last_timestamp", pa.int64()),
    pa.field("senders", pa.list_(pa.string())),
    pa.field("erasure_code", pa.string()),
    pa.field("send_id", pa.string()),
    pa.field("copies", pa.int32()),
    pa.field("data_segments_recovered", pa.int32()),
    pa.field("error", pa.string()),
]
MESSAGE_SCHEMA = pa.schema(_FIELDS)
STATUSES = ("complete", "recovered", "incomplete", "invalid")
# Segments that a pass over rows in order of arrival holds at once, about; when it is full a quarter of it is settled.
WINDOW_BYTES = 64 << 20
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def parameters(config: SegmentationConfig) -> _native.SegmentationParameters:
    """The native form of a configuration; made where it is used, because it does not travel in a plan."""
    return _native.SegmentationParameters(
        segment_size_bytes=config.segment_size_bytes,
        enable_reed_solomon=config.enable_reed_solomon,
        parity_rate=config.parity_rate,
        parity_for_single_segment=config.parity_for_single_segment,
        erasure_code=config.erasure_code,
        wire_format=config.wire_format,
        max_total_segments=config.max_total_segments,
        max_tail_candidates=config.max_tail_candidates or config.segment_size_bytes,
    )


def limits_of(config: SegmentationConfig) -> dict[str, int]:
    """What the native state machines hold of one message, as their arguments."""
    limits = config.limits
    return {
        "candidates_per_slot_max": limits.candidates_per_slot_max,
        "held_bytes_max": limits.buffered_bytes_per_sender_max,
        "work_budget": limits.work_budget,
    }


def remedy_of(is_text: bool, wanted: str) -> str:
    """What to do about a column of another type than the one that is wanted."""
    # A cast of base64 gives bytes, too, and other ones.
    return "decode it before, from base64 for example" if is_text and wanted == "binary" else "cast it before"


def batch_of(columns: Mapping[str, Array]) -> pa.RecordBatch:
    """A record batch of named columns."""
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def columns_of(batch: pa.RecordBatch) -> dict[str, Array]:
    """The columns of a batch by their names."""
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def nanoseconds_of(times: Array) -> Array:
    """Times as nanoseconds since the Unix epoch; null where there are none."""
    if pa.types.is_timestamp(times.type):
        # Beyond the year 2262 there are no nanoseconds: null, as on Spark.
        units = times.cast(pa.int64())
        factor = _NANOSECONDS[times.type.unit]
        limit = pa.scalar(((1 << 63) - 1) // factor, pa.int64())
        held = pa.compute.if_else(
            pa.compute.less_equal(pa.compute.abs(units), limit), units, pa.scalar(None, pa.int64())
        )
        exact: Array = pa.compute.multiply(held, pa.scalar(factor, pa.int64()))
        return exact
    return times
