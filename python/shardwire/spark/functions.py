"""Column functions over the native kernels, as Arrow UDFs: one native call a batch.

Null gives null. Bytes that are not what a function decodes give null fields and an `error`; they never fail a task.
`pandas_functions` has the same names as pandas UDFs; `register` makes them known to SQL. PySpark before 4.1 has
no Arrow UDFs: there these are pandas UDFs too, and a null row of a struct becomes a struct of nulls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from shardwire import _native
from shardwire.archive.arrow import Array, parameters
from shardwire.archive.unwrap import Decrypt, state_of
from shardwire.config import SdsWireFormat, SegmentationConfig, SegmentWireFormat
from shardwire.config.checks import check_bool, check_integer, check_kind
from shardwire.errors import ConfigError, PayloadTooLargeError
from shardwire.spark import schema
from shardwire.spark.udfs import BatchFunction, arrow_form

__all__ = [
    "decode_sds",
    "decode_segment",
    "decode_waku_message",
    "decrypt",
    "keccak256",
    "message_hash",
    "segment",
    "shard_of",
]

if TYPE_CHECKING:
    from pyspark.sql import Column

    ColumnOrName = Column | str


def keccak256(data: ColumnOrName) -> Column:
    """Keccak-256 of a binary column: 32 bytes. `with_keccak256` is faster where whole rows are wanted."""
    return arrow_form(keccak256_batches())(data)


def decode_segment(
    data: ColumnOrName,
    wire_format: SegmentWireFormat = "raw",
    *,
    max_total_segments: int = 256,
    include_payload: bool = True,
) -> Column:
    """The header and the payload of a segment, as a struct with `error`.

    Args:
        data: Bytes of one segment a row.
        wire_format: The segment wire. Under `draft`, bytes that are a whole message have `segment_payload` alone.
        max_total_segments: Segments of one payload that are accepted.
        include_payload: False leaves `segment_payload` null.

    Raises:
        ConfigError: An unknown wire, a number below 1, or a flag that is none.
    """
    check_segments(wire_format, max_total_segments, include_payload)
    return arrow_form(decode_segment_batches(wire_format, max_total_segments, include_payload))(data)


def decode_sds(data: ColumnOrName, wire_format: SdsWireFormat = "spec") -> Column:
    """The fields of an SDS message, its kind, and the send and place in it that its id names, as a struct with `error`.

    Raises:
        ConfigError: An unknown wire.
    """
    check_choice("wire_format", wire_format, ("spec", "nim"))
    return arrow_form(decode_sds_batches(wire_format))(data)


def decode_waku_message(data: ColumnOrName) -> Column:
    """The fields of a Waku message (14/WAKU2-MESSAGE), as a struct with `error`; `timestamp` is in ns."""
    return arrow_form(decode_waku_message_batches())(data)


def message_hash(
    pubsub_topic: ColumnOrName,
    payload: ColumnOrName,
    content_topic: ColumnOrName,
    meta: ColumnOrName | None = None,
    timestamp_ns: ColumnOrName | None = None,
) -> Column:
    """The deterministic message hash of 14/WAKU2-MESSAGE: 32 bytes.

    A null `meta` adds nothing and a null timestamp counts as 0; a null topic or payload gives null.
    """
    return arrow_form(message_hash_batches())(*hashed_columns(pubsub_topic, payload, content_topic, meta, timestamp_ns))


def shard_of(content_topic: ColumnOrName, num_shards_in_cluster: int = 8) -> Column:
    """The shard of a content topic under autosharding; null where the topic has another form.

    Raises:
        ConfigError: Fewer than one shard.
    """
    check_shards(num_shards_in_cluster)
    return arrow_form(shard_of_batches(num_shards_in_cluster))(content_topic)


def segment(payload: ColumnOrName, config: SegmentationConfig | None = None) -> Column:
    """The segments of a payload, data before parity. `segment_messages` gives a row a segment instead.

    A payload that does not fit one message fails the query with `PayloadTooLargeError`: leaving it out would lose it.
    """
    check_kind("config", config, SegmentationConfig)
    return arrow_form(segment_batches(config or SegmentationConfig()))(payload)


def hashed_columns(
    pubsub_topic: ColumnOrName,
    payload: ColumnOrName,
    content_topic: ColumnOrName,
    meta: ColumnOrName | None,
    timestamp_ns: ColumnOrName | None,
) -> list[ColumnOrName]:
    """The arguments of a message hash, those that are not given in their places."""
    nothing, zero = F.lit(None).cast("binary"), F.lit(0).cast("bigint")
    time = F.col(timestamp_ns) if isinstance(timestamp_ns, str) else timestamp_ns
    return [
        pubsub_topic,
        payload,
        content_topic,
        nothing if meta is None else meta,
        zero if time is None else F.coalesce(time, zero),
    ]


def check_shards(num_shards_in_cluster: int) -> None:
    """Refuses a number of shards that no cluster has."""
    check_integer("num_shards_in_cluster", num_shards_in_cluster, 1, (1 << 31) - 1)


def check_segments(wire_format: object, max_total_segments: object, include_payload: object) -> None:
    """Refuses arguments of `decode_segment` that its tasks would fail of, or take for others."""
    check_choice("wire_format", wire_format, ("raw", "draft", "lip243"))
    check_integer("max_total_segments", max_total_segments, 1, (1 << 31) - 1)
    check_bool("include_payload", include_payload)


def decrypt(data: ColumnOrName, step: Decrypt) -> Column:
    """What `shardwire.encryption` encrypted, as a struct of `content` and `error`.

    Args:
        data: Bytes of one ciphertext a row.
        step: Where the executors find the key, as `shardwire.spark.decrypt` makes it.
    """
    return arrow_form(decrypt_batches(step))(data)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuses what is not one of the choices, before a plan is made of it."""
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: it must be one of {', '.join(map(repr, choices))}")


def keccak256_array(data: Array) -> Array:
    """Keccak-256 of every row."""
    digests: Array = _native.arrow_keccak256(data)
    return digests


def segment_array(payload: Array, config: SegmentationConfig) -> Array:
    """The segments of every row.

    Raises:
        PayloadTooLargeError: A payload does not fit one message.
    """
    segments: Array
    segments, error = _native.arrow_segment(payload, parameters(config))
    if error is not None:
        raise PayloadTooLargeError(error)
    return segments


@lru_cache(maxsize=1)
def keccak256_batches() -> BatchFunction:
    """What `keccak256` is of a batch."""

    def keccak256(data: Array) -> Array:
        return keccak256_array(data)

    return BatchFunction(keccak256, ("binary",), schema.BINARY)


@lru_cache(maxsize=64)
def decode_segment_batches(
    wire_format: SegmentWireFormat, max_total_segments: int, include_payload: bool
) -> BatchFunction:
    """What `decode_segment` is of a batch."""

    def decode_segment(data: Array) -> Array:
        out: Array = _native.arrow_decode_segment(data, wire_format, max_total_segments, include_payload)
        return out

    return BatchFunction(decode_segment, ("binary",), schema.SEGMENT)


@lru_cache(maxsize=4)
def decode_sds_batches(wire_format: SdsWireFormat) -> BatchFunction:
    """What `decode_sds` is of a batch."""

    def decode_sds(data: Array) -> Array:
        out: Array = _native.arrow_decode_sds(data, wire_format)
        return out

    return BatchFunction(decode_sds, ("binary",), schema.SDS_MESSAGE)


@lru_cache(maxsize=1)
def decode_waku_message_batches() -> BatchFunction:
    """What `decode_waku_message` is of a batch."""

    def decode_waku_message(data: Array) -> Array:
        out: Array = _native.arrow_decode_waku_message(data)
        return out

    return BatchFunction(decode_waku_message, ("binary",), schema.WAKU_MESSAGE)


@lru_cache(maxsize=1)
def message_hash_batches() -> BatchFunction:
    """What `message_hash` is of a batch."""

    def message_hash(
        pubsub_topic: Array, payload: Array, content_topic: Array, meta: Array, timestamp_ns: Array
    ) -> Array:
        # A literal number of SQL is an int.
        timestamp_ns = timestamp_ns.cast(pa.int64())
        out: Array = _native.arrow_message_hash(pubsub_topic, payload, content_topic, meta, timestamp_ns)
        return out

    return BatchFunction(message_hash, ("string", "binary", "string", "binary", "bigint"), schema.BINARY)


@lru_cache(maxsize=64)
def shard_of_batches(num_shards_in_cluster: int) -> BatchFunction:
    """What `shard_of` is of a batch."""

    def shard_of(content_topic: Array) -> Array:
        out: Array = _native.arrow_shard_of(content_topic, num_shards_in_cluster)
        return out

    return BatchFunction(shard_of, ("string",), schema.INTEGER)


@lru_cache(maxsize=64)
def segment_batches(config: SegmentationConfig) -> BatchFunction:
    """What `segment` is of a batch."""

    def segment(payload: Array) -> Array:
        return segment_array(payload, config)

    return BatchFunction(segment, ("binary",), schema.SEGMENTS)


@lru_cache(maxsize=64)
def decrypt_batches(step: Decrypt) -> BatchFunction:
    """What `decrypt` is of a batch."""

    def decrypt(data: Array) -> Array:
        nothing = pa.nulls(len(data))
        state = step.unwrap(state_of(data, nothing, nothing))
        contents = state.column("payload").cast(pa.binary())
        out: Array = pa.StructArray.from_arrays([contents, state.column("error")], names=["content", "error"])
        return out

    return BatchFunction(decrypt, ("binary",), schema.DECRYPTED)
