"""The second proof: Spark reconstructs the message from the listener's archive, on executors, and compares its hash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow.parquet as pq

from shardwire._native import SdsMessage
from shardwire.cli.demo.settings import CHANNEL_ID
from shardwire.config import SegmentationConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import DecryptionError
from shardwire.spark import decrypt, reconstruct
from shardwire.spark import functions as sw
from shardwire.spark.session import local_cluster_session


@dataclass(frozen=True, slots=True)
class SparkMessage:
    """One row of Spark's answer.

    Attributes:
        entire_message_hash: The hash that the segments name.
        status: "complete", "recovered", "incomplete" or "invalid".
        data_segment_count: Data segments of the message.
        parity_segment_count: Parity segments of the message.
        segments_received: Distinct segments in the archive.
        data_segments_recovered: Data segments that came back through parity.
        payload_length: Bytes of the reconstructed payload; None where it is not whole.
        keccak256: Hash of the reconstructed payload, taken on the executor; None where it is not whole.
    """

    entire_message_hash: bytes
    status: str
    data_segment_count: int | None
    parity_segment_count: int | None
    segments_received: int
    data_segments_recovered: int | None
    payload_length: int | None
    keccak256: bytes | None


@dataclass(frozen=True, slots=True)
class SparkResult:
    """Spark's answer and how long it took: the whole of it, and the job alone without the start of the cluster."""

    messages: tuple[SparkMessage, ...]
    seconds: float
    job_seconds: float


def reconstruct_on_spark(archive: Path, key_file: Path, segmentation: SegmentationConfig) -> SparkResult:
    """Decrypts, decodes and reconstructs the archive on a local cluster of two executor processes.

    The key is read by the executors from `key_file`; the plan holds its path. Payloads stay on the executors.

    Raises:
        ConfigError: There is no Java that Spark can run on.
    """
    started = time.monotonic()
    spark = local_cluster_session("shardwire-demo", workers=2, cores=1, memory_mib=1024)
    try:
        job_started = time.monotonic()
        messages = reconstruct(
            spark.read.parquet(str(archive)),
            config=segmentation,
            payload="payload",
            by=["content_topic"],
            unwrap=[decrypt(key_file=str(key_file), channel_id=CHANNEL_ID), "sds"],
        )
        columns = [field.name for field in fields(SparkMessage) if field.name != "keccak256"]
        rows = messages.select(*columns, sw.keccak256("payload").alias("keccak256")).collect()
        finished = time.monotonic()
    finally:
        spark.stop()
    # Rows without a hash count messages that are no segments of anything.
    found = tuple(SparkMessage(**row.asDict()) for row in rows if row["entire_message_hash"] is not None)
    return SparkResult(found, time.monotonic() - started, finished - job_started)


def heard_segments(archive: Path, encryption: ChaCha20Poly1305Encryption, send_id: str) -> Mapping[int, list[int]]:
    """Which segments of a send the archive holds: segment -> Unix times in ms of its transmissions."""
    bound = encryption.bind(CHANNEL_ID)
    heard: dict[int, list[int]] = {}
    for row in pq.read_table(archive, columns=["timestamp", "payload"]).to_pylist():
        try:
            message = SdsMessage.decode(bound.decrypt(row["payload"]))
        except DecryptionError:
            continue
        if message is None:
            continue
        # The default rule of message ids: the send and the place in it.
        named, _, ordinal = message.message_id.partition(".")
        if named == send_id and ordinal.isdigit():
            heard.setdefault(int(ordinal), []).append(row["timestamp"] // 1_000_000)
    return heard
