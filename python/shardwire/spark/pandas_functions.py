"""The column functions of `shardwire.spark.functions` as pandas UDFs, under the same names.

For clusters and notebooks built on pandas UDFs; the Arrow ones spare a conversion each way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwire.archive.unwrap import Decrypt
from shardwire.config import SdsWireFormat, SegmentationConfig, SegmentWireFormat
from shardwire.config.checks import check_kind
from shardwire.spark import functions
from shardwire.spark.udfs import pandas_form

if TYPE_CHECKING:
    from pyspark.sql import Column

    ColumnOrName = Column | str


def keccak256(data: ColumnOrName) -> Column:
    """Keccak-256 of a binary column: 32 bytes."""
    return pandas_form(functions.keccak256_batches())(data)


def decode_segment(
    data: ColumnOrName,
    wire_format: SegmentWireFormat = "raw",
    *,
    max_total_segments: int = 256,
    include_payload: bool = True,
) -> Column:
    """The header and the payload of a segment, as a struct with `error`. See `functions.decode_segment`."""
    functions.check_segments(wire_format, max_total_segments, include_payload)
    return pandas_form(functions.decode_segment_batches(wire_format, max_total_segments, include_payload))(data)


def decode_sds(data: ColumnOrName, wire_format: SdsWireFormat = "spec") -> Column:
    """The fields of an SDS message, as a struct with `error`. See `functions.decode_sds`."""
    functions.check_choice("wire_format", wire_format, ("spec", "nim"))
    return pandas_form(functions.decode_sds_batches(wire_format))(data)


def decode_waku_message(data: ColumnOrName) -> Column:
    """The fields of a Waku message, as a struct with `error`. See `functions.decode_waku_message`."""
    return pandas_form(functions.decode_waku_message_batches())(data)


def message_hash(
    pubsub_topic: ColumnOrName,
    payload: ColumnOrName,
    content_topic: ColumnOrName,
    meta: ColumnOrName | None = None,
    timestamp_ns: ColumnOrName | None = None,
) -> Column:
    """The deterministic message hash of 14/WAKU2-MESSAGE. See `functions.message_hash`."""
    arguments = functions.hashed_columns(pubsub_topic, payload, content_topic, meta, timestamp_ns)
    return pandas_form(functions.message_hash_batches())(*arguments)


def shard_of(content_topic: ColumnOrName, num_shards_in_cluster: int = 8) -> Column:
    """The shard of a content topic under autosharding; null where the topic has another form."""
    functions.check_shards(num_shards_in_cluster)
    return pandas_form(functions.shard_of_batches(num_shards_in_cluster))(content_topic)


def segment(payload: ColumnOrName, config: SegmentationConfig | None = None) -> Column:
    """The segments of a payload, data before parity. See `functions.segment`."""
    check_kind("config", config, SegmentationConfig)
    return pandas_form(functions.segment_batches(config or SegmentationConfig()))(payload)


def decrypt(data: ColumnOrName, step: Decrypt) -> Column:
    """What `shardwire.encryption` encrypted, as a struct of `content` and `error`. See `functions.decrypt`."""
    return pandas_form(functions.decrypt_batches(step))(data)
