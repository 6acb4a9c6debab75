"""Rows for the Spark tests: payloads from a seed, their segments, and what the plain Reassembler makes of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shardwire import SegmentationConfig, _native, keccak256
from shardwire.segmentation import PayloadReconstructed, Reassembler, segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIP243 = SegmentationConfig(segment_size_bytes=640, wire_format="lip243")
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


def counted(rows: list[Any]) -> dict[Any, Any]:
    """Of every message its status; of what is no segment the rows by reason."""
    unread = {row["error"]: row["segments_received"] for row in rows if row["entire_message_hash"] is None}
    return unread | {
        (row["entire_message_hash"], row["send_id"]): (row["status"], row["data_segments_recovered"], row["payload"])
        for row in rows
        if row["entire_message_hash"] is not None
    }


def sent(send: str, place: int, content: bytes) -> bytes:
    return _native.SdsMessage(
        sender_id="alice", message_id=f"{send}.{place}", channel_id="room", lamport_timestamp=1, content=content
    ).encode()


def hostile_archive(seed: int) -> list[bytes]:
    """Messages with losses, repeats and forgeries, in random order, among rows that are no segments in many ways."""
    chance = random.Random(seed)
    rows: list[bytes] = []
    for number in range(60):
        send = f"{number:032x}"
        parts = segment(payload_of(seed * 100 + number, 5_000), CONFIG)
        lost = chance.sample(range(12), chance.choice([0, 0, 1, 3, 6]))
        for place, part in enumerate(parts):
            if place not in lost:
                rows += [sent(send, place, part)] * chance.choice([1, 1, 1, 2])
        if number % 10 == 0:
            rows.append(sent(send, 2, parts[2][:300] + b"----" + parts[2][304:]))
    # Anyone can invent a send id, a length, a number: none of them is a reason of its own.
    rows += [sent(f"{number:032x}", 0, chance.randbytes(50 + number)) for number in range(57)]
    rows += [chance.randbytes(number + 1) for number in range(20)]
    rows += [sent("f" * 32, place, part) for place, part in enumerate(segment(payload_of(seed, 3_000), LIP243))]
    chance.shuffle(rows)
    return rows
