"""Column functions over the native kernels, as Arrow UDFs: one native call a batch.

Null gives null. Bytes that are not what a function decodes give null fields and an `error`; they never fail a task.
`pandas_functions` has the same names as pandas UDFs; `register` makes them known to SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from shardwire import _native
from shardwire.config import SdsWireFormat, SegmentationConfig, SegmentWireFormat
from shardwire.errors import ConfigError, PayloadTooLargeError
from shardwire.spark import schema
from shardwire.spark.native import Array, parameters

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    ColumnOrName = Column | str
    Udf = Callable[..., Column]


def keccak256(data: ColumnOrName) -> Column:
    """Keccak-256 of a binary column: 32 bytes. `with_keccak256` is faster where whole rows are wanted."""
    return keccak256_udf()(data)


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
        ConfigError: An unknown wire.
    """
    check_choice("wire_format", wire_format, ("raw", "draft", "lip243"))
    return decode_segment_udf(wire_format, max_total_segments, include_payload)(data)


def decode_sds(data: ColumnOrName, wire_format: SdsWireFormat = "spec") -> Column:
    """The fields of an SDS message, its kind, and the send and place in it that its id names, as a struct with `error`.

    Raises:
        ConfigError: An unknown wire.
    """
    check_choice("wire_format", wire_format, ("spec", "nim"))
    return decode_sds_udf(wire_format)(data)


def decode_waku_message(data: ColumnOrName) -> Column:
    """The fields of a Waku message (14/WAKU2-MESSAGE), as a struct with `error`; `timestamp` is in ns."""
    return decode_waku_message_udf()(data)


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
    nothing, zero = F.lit(None).cast("binary"), F.lit(0).cast("bigint")
    return message_hash_udf()(
        pubsub_topic,
        payload,
        content_topic,
        nothing if meta is None else meta,
        zero if timestamp_ns is None else timestamp_ns,
    )


def shard_of(content_topic: ColumnOrName, num_shards_in_cluster: int = 8) -> Column:
    """The shard of a content topic under autosharding; null where the topic has another form.

    Raises:
        ConfigError: Fewer than one shard.
    """
    if not 1 <= num_shards_in_cluster < 1 << 31:
        raise ConfigError(f"num_shards_in_cluster is {num_shards_in_cluster}: it must be from 1 to {(1 << 31) - 1}")
    return shard_of_udf(num_shards_in_cluster)(content_topic)


def segment(payload: ColumnOrName, config: SegmentationConfig | None = None) -> Column:
    """The segments of a payload, data before parity. `segment_messages` gives a row a segment instead.

    A payload that does not fit one message fails the query with `PayloadTooLargeError`: leaving it out would lose it.
    """
    return segment_udf(config or SegmentationConfig())(payload)


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
def keccak256_udf() -> Udf:
    """The Arrow UDF itself, for `spark.udf.register`."""

    def of_batch(data: Array) -> Array:
        return keccak256_array(data)

    return _scalar(of_batch, schema.BINARY)


@lru_cache(maxsize=64)
def decode_segment_udf(wire_format: SegmentWireFormat, max_total_segments: int, include_payload: bool) -> Udf:
    """The Arrow UDF itself, for `spark.udf.register`."""

    def of_batch(data: Array) -> Array:
        out: Array = _native.arrow_decode_segment(data, wire_format, max_total_segments, include_payload)
        return out

    return _scalar(of_batch, schema.SEGMENT)


@lru_cache(maxsize=4)
def decode_sds_udf(wire_format: SdsWireFormat) -> Udf:
    """The Arrow UDF itself, for `spark.udf.register`."""

    def of_batch(data: Array) -> Array:
        out: Array = _native.arrow_decode_sds(data, wire_format)
        return out

    return _scalar(of_batch, schema.SDS_MESSAGE)


@lru_cache(maxsize=1)
def decode_waku_message_udf() -> Udf:
    """The Arrow UDF itself, for `spark.udf.register`."""

    def of_batch(data: Array) -> Array:
        out: Array = _native.arrow_decode_waku_message(data)
        return out

    return _scalar(of_batch, schema.WAKU_MESSAGE)


@lru_cache(maxsize=1)
def message_hash_udf() -> Udf:
    """The Arrow UDF itself, for `spark.udf.register`."""

    def of_batch(pubsub_topic: Array, payload: Array, content_topic: Array, meta: Array, timestamp_ns: Array) -> Array:
        # A literal number of SQL is an int.
        timestamp_ns = timestamp_ns.cast(pa.int64())
        out: Array = _native.arrow_message_hash(pubsub_topic, payload, content_topic, meta, timestamp_ns)
        return out

    return _scalar(of_batch, schema.BINARY)


@lru_cache(maxsize=64)
def shard_of_udf(num_shards_in_cluster: int) -> Udf:
    """The Arrow UDF itself, for `spark.udf.register`."""

    def of_batch(content_topic: Array) -> Array:
        out: Array = _native.arrow_shard_of(content_topic, num_shards_in_cluster)
        return out

    return _scalar(of_batch, schema.INTEGER)


@lru_cache(maxsize=64)
def segment_udf(config: SegmentationConfig) -> Udf:
    """The Arrow UDF itself, for `spark.udf.register`."""

    def of_batch(payload: Array) -> Array:
        return segment_array(payload, config)

    return _scalar(of_batch, schema.SEGMENTS)


def _scalar(of_batch: Callable[..., Array], returns: DataType) -> Udf:
    # The stubs want a function type; Spark prefers the annotations and warns about one.
    declare: Any = arrow_udf
    udf: Udf = declare(of_batch, returnType=returns)
    return udf
