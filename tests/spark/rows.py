"""Rows for the Spark tests: payloads from a seed, their segments, and what the plain Reassembler makes of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shardwire import SegmentationConfig, keccak256
from shardwire.segmentation import PayloadReconstructed, Reassembler, segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = SegmentationConfig(segment_size_bytes=640, enable_reed_solomon=True, parity_rate=0.5)

FIXED = ("hash", "send_id", "payload", "timestamp", "sender", "error")


def payload_of(seed: int, length: int) -> bytes:
    """`length` bytes that differ from seed to seed and end in a byte that is not zero."""
    return random.Random(seed).randbytes(length)[:-1] + b"\x01" if length else b""


def without(segments: Sequence[bytes], lost: Iterable[int]) -> list[bytes]:
    """The segments at every position but those of `lost`."""
    gone = set(lost)
    return [part for position, part in enumerate(segments) if position not in gone]


def reassembled(segments: Iterable[bytes], config: SegmentationConfig) -> dict[bytes, bytes]:
    """What the plain Reassembler makes of segments in this order: payload by hash."""
    reassembler = Reassembler(config)
    found = {}
    for now_ms, part in enumerate(segments):
        outcome = reassembler.receive(part, now_ms=now_ms)
        if isinstance(outcome, PayloadReconstructed):
            found[outcome.entire_message_hash] = outcome.payload
    return found


def segment_batch(rows: Sequence[dict[str, Any]], by: dict[str, pa.DataType] | None = None) -> pa.RecordBatch:
    """A batch for `ArrowReconstructor`; rows name what they have, the rest is null."""
    types = {
        **(by or {}),
        "hash": pa.binary(),
        "send_id": pa.string(),
        "payload": pa.binary(),
        "timestamp": pa.int64(),
        "sender": pa.string(),
        "error": pa.string(),
    }
    columns = {name: pa.array([row.get(name) for row in rows], type=kind) for name, kind in types.items()}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def rows_of(payload: bytes, config: SegmentationConfig = CONFIG, lost: Iterable[int] = ()) -> list[dict[str, Any]]:
    """The rows of one message without some of its segments."""
    digest = keccak256(payload)
    return [{"hash": digest, "payload": part} for part in without(segment(payload, config), lost)]


def in_partitions(spark: SparkSession, count: int, payloads: Sequence[bytes]) -> DataFrame:
    """Rows of payloads in their order, cut into as many partitions."""
    rows = spark.sparkContext.parallelize([(payload,) for payload in payloads], count)
    return spark.createDataFrame(rows, "payload binary")
