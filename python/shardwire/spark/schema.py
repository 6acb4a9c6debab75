"""The Spark types of everything this package returns."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from shardwire.archive.arrow import MESSAGE_SCHEMA


def _struct(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind, nullable=True) for name, kind in fields])


SEGMENT = _struct(
    ("entire_message_hash", BinaryType()),
    ("is_parity", BooleanType()),
    ("data_segment_index", IntegerType()),
    ("data_segment_count", IntegerType()),
    ("parity_segment_index", IntegerType()),
    ("parity_segment_count", IntegerType()),
    ("payload_length", LongType()),
    ("segment_payload_length", IntegerType()),
    ("segment_payload", BinaryType()),
    ("error", StringType()),
)

HISTORY_ENTRIES = ArrayType(
    _struct(("message_id", StringType()), ("retrieval_hint", BinaryType()), ("sender_id", StringType()))
)

SDS_MESSAGE = _struct(
    ("sender_id", StringType()),
    ("message_id", StringType()),
    ("channel_id", StringType()),
    ("kind", StringType()),
    ("lamport_timestamp", LongType()),
    ("causal_history", HISTORY_ENTRIES),
    ("repair_request", HISTORY_ENTRIES),
    ("bloom_filter", BinaryType()),
    ("content", BinaryType()),
    ("send_id", StringType()),
    ("segment_ordinal", IntegerType()),
    ("error", StringType()),
)

WAKU_MESSAGE = _struct(
    ("payload", BinaryType()),
    ("content_topic", StringType()),
    ("version", LongType()),
    ("timestamp", LongType()),
    ("meta", BinaryType()),
    ("rate_limit_proof", BinaryType()),
    ("ephemeral", BooleanType()),
    ("error", StringType()),
)

_SPARK_TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "list<item: string>": ArrayType(StringType()),
}

# What `reconstruct` adds to the columns of `by`.
MESSAGE_FIELDS = _struct(*((field.name, _SPARK_TYPES[str(field.type)]) for field in MESSAGE_SCHEMA))

# What `segment_messages` adds to the columns that it keeps.
SEGMENT_FIELDS = _struct(
    ("entire_message_hash", BinaryType()),
    ("segment", BinaryType()),
    ("segment_index", IntegerType()),
    ("is_parity", BooleanType()),
    ("data_segment_count", IntegerType()),
    ("parity_segment_count", IntegerType()),
    ("error", StringType()),
)

SEGMENTS = ArrayType(BinaryType())
BINARY = BinaryType()
INTEGER = IntegerType()
DECRYPTED = _struct(("content", BinaryType()), ("error", StringType()))
