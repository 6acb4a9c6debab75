"""The column functions of `shardwire.spark.functions` as pandas UDFs, under the same names.

For clusters and notebooks built on pandas UDFs; the Arrow ones spare a conversion each way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from shardwire import _native
from shardwire.config import SdsWireFormat, SegmentationConfig, SegmentWireFormat
from shardwire.errors import ConfigError
from shardwire.spark import schema
from shardwire.spark.functions import check_choice, keccak256_array, segment_array
from shardwire.spark.native import Array

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    ColumnOrName = Column | str
    Udf = Callable[..., Column]


def keccak256(data: ColumnOrName) -> Column:
    """Keccak-256 of a binary column: 32 bytes."""
    return _keccak256_udf()(data)


def decode_segment(
    data: ColumnOrName,
    wire_format: SegmentWireFormat = "raw",
    *,
    max_total_segments: int = 256,
    include_payload: bool = True,
) -> Column:
    """The header and the payload of a segment, as a struct with `error`. See `functions.decode_segment`."""
    check_choice("wire_format", wire_format, ("raw", "draft", "lip243"))
    return _decode_segment_udf(wire_format, max_total_segments, include_payload)(data)


def decode_sds(data: ColumnOrName, wire_format: SdsWireFormat = "spec") -> Column:
    """The fields of an SDS message, as a struct with `error`. See `functions.decode_sds`."""
    check_choice("wire_format", wire_format, ("spec", "nim"))
    return _decode_sds_udf(wire_format)(data)


def decode_waku_message(data: ColumnOrName) -> Column:
    """The fields of a Waku message, as a struct with `error`. See `functions.decode_waku_message`."""
    return _decode_waku_message_udf()(data)


def message_hash(
    pubsub_topic: ColumnOrName,
    payload: ColumnOrName,
    content_topic: ColumnOrName,
    meta: ColumnOrName | None = None,
    timestamp_ns: ColumnOrName | None = None,
) -> Column:
    """The deterministic message hash of 14/WAKU2-MESSAGE. See `functions.message_hash`."""
    nothing, zero = F.lit(None).cast("binary"), F.lit(0).cast("bigint")
    return _message_hash_udf()(
        pubsub_topic,
        payload,
        content_topic,
        nothing if meta is None else meta,
        # pandas has no nullable integer by default: a null would turn nanoseconds into rounded floats.
        zero if timestamp_ns is None else F.coalesce(_column(timestamp_ns), zero),
    )


def shard_of(content_topic: ColumnOrName, num_shards_in_cluster: int = 8) -> Column:
    """The shard of a content topic under autosharding; null where the topic has another form."""
    if not 1 <= num_shards_in_cluster < 1 << 31:
        raise ConfigError(f"num_shards_in_cluster is {num_shards_in_cluster}: it must be from 1 to {(1 << 31) - 1}")
    return _shard_of_udf(num_shards_in_cluster)(content_topic)


def segment(payload: ColumnOrName, config: SegmentationConfig | None = None) -> Column:
    """The segments of a payload, data before parity. See `functions.segment`."""
    return _segment_udf(config or SegmentationConfig())(payload)


@lru_cache(maxsize=1)
def _keccak256_udf() -> Udf:
    def of_series(data: pd.Series) -> pd.Series:
        return _series(keccak256_array(_binary(data)))

    return _scalar(of_series, schema.BINARY)


@lru_cache(maxsize=64)
def _decode_segment_udf(wire_format: SegmentWireFormat, max_total_segments: int, include_payload: bool) -> Udf:
    def of_series(data: pd.Series) -> pd.DataFrame:
        decoded = _native.arrow_decode_segment(_binary(data), wire_format, max_total_segments, include_payload)
        return _frame(decoded)

    return _scalar(of_series, schema.SEGMENT)


@lru_cache(maxsize=4)
def _decode_sds_udf(wire_format: SdsWireFormat) -> Udf:
    def of_series(data: pd.Series) -> pd.DataFrame:
        return _frame(_native.arrow_decode_sds(_binary(data), wire_format))

    return _scalar(of_series, schema.SDS_MESSAGE)


@lru_cache(maxsize=1)
def _decode_waku_message_udf() -> Udf:
    def of_series(data: pd.Series) -> pd.DataFrame:
        return _frame(_native.arrow_decode_waku_message(_binary(data)))

    return _scalar(of_series, schema.WAKU_MESSAGE)


@lru_cache(maxsize=1)
def _message_hash_udf() -> Udf:
    def of_series(
        pubsub_topic: pd.Series, payload: pd.Series, content_topic: pd.Series, meta: pd.Series, timestamp_ns: pd.Series
    ) -> pd.Series:
        return _series(
            _native.arrow_message_hash(
                _text(pubsub_topic),
                _binary(payload),
                _text(content_topic),
                _binary(meta),
                pa.array(timestamp_ns, type=pa.int64()),
            )
        )

    return _scalar(of_series, schema.BINARY)


@lru_cache(maxsize=64)
def _shard_of_udf(num_shards_in_cluster: int) -> Udf:
    def of_series(content_topic: pd.Series) -> pd.Series:
        shards = _native.arrow_shard_of(_text(content_topic), num_shards_in_cluster)
        return pd.Series(shards.to_pylist(), dtype="Int32")

    return _scalar(of_series, schema.INTEGER)


@lru_cache(maxsize=64)
def _segment_udf(config: SegmentationConfig) -> Udf:
    def of_series(payload: pd.Series) -> pd.Series:
        return _series(segment_array(_binary(payload), config))

    return _scalar(of_series, schema.SEGMENTS)


def _scalar(of_series: Callable[..., Any], returns: DataType) -> Udf:
    # The stubs want a function type; Spark prefers the annotations and warns about one.
    declare: Any = pandas_udf
    udf: Udf = declare(of_series, returnType=returns)
    return udf


def _column(column: ColumnOrName) -> Column:
    return F.col(column) if isinstance(column, str) else column


def _binary(series: pd.Series) -> Array:
    return pa.array(series, type=pa.large_binary(), from_pandas=True)


def _text(series: pd.Series) -> Array:
    return pa.array(series, type=pa.large_string(), from_pandas=True)


def _series(array: Array) -> pd.Series:
    return pd.Series(array.to_pylist(), dtype=object)


def _frame(array: pa.StructArray) -> pd.DataFrame:
    # A pandas UDF has no null struct: a null row becomes a struct of nulls.
    columns = {field.name: _series(array.field(position)) for position, field in enumerate(array.type)}
    return pd.DataFrame(columns, dtype=object)
