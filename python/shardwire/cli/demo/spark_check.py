"""The second proof: Spark reconstructs the message from the listener's archive, on executors, and compares its hash."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from shardwire.cli.demo.settings import CHANNEL_ID
from shardwire.config import SegmentationConfig
from shardwire.errors import ShardwireError
from shardwire.spark import decrypt, reconstruct
from shardwire.spark import functions as sw
from shardwire.spark.failures import is_of_interruption
from shardwire.spark.session import local_cluster_session

STANDARD_ERROR = 2
# A cluster that lives for seconds: it would spend as long again on optimising code and on parallel collection.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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


def reconstruct_on_spark(archive: Path, key_file: Path, segmentation: SegmentationConfig, log: Path) -> SparkResult:
    """Decrypts, decodes and reconstructs the archive on a local cluster of two executor processes.

    The key is read by the executors from `key_file`; the plan holds its path. Payloads stay on the executors.

    Args:
        archive: Directory of Parquet files.
        key_file: The channel's key.
        segmentation: How the file was segmented.
        log: Gets what Java writes to its standard error stream.

    Raises:
        ConfigError: There is no Java that Spark can run on.
        ShardwireError: The job failed; the log says more.
    """
    with _standard_error_in(log):
        try:
            return _reconstruct(archive, key_file, segmentation)
        except (PySparkException, Py4JError) as error:
            if is_of_interruption(error):
                raise KeyboardInterrupt from error
            raise ShardwireError(f"Spark failed: {str(error).partition(chr(10))[0]}; {log} says more") from None


def _reconstruct(archive: Path, key_file: Path, segmentation: SegmentationConfig) -> SparkResult:
    started = time.monotonic()
    # Read by every Java that this process starts.
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED_JAVA)
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


@contextmanager
def _standard_error_in(log: Path) -> Iterator[None]:
    """Points this process's standard error stream at a file: the Java process inherits it when it starts."""
    sys.stderr.flush()
    saved = os.dup(STANDARD_ERROR)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), STANDARD_ERROR)
        yield
    finally:
        os.dup2(saved, STANDARD_ERROR)
        os.close(saved)
