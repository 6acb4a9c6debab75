"""What the demo runs with: the network's faults, and a channel configuration that fits the file."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from shardwire.config import ChannelConfig, RateLimitConfig, SegmentationConfig
from shardwire.errors import PayloadTooLargeError, ShardwireError
from shardwire.node import NetworkConditions
from shardwire.segmentation.parameters import native_parameters

ARCHIVE = "archive.parquet"
SPARK_LOG = "spark.log"
CHANNEL_ID = "shardwire-demo"
CONTENT_TOPIC = "/shardwire/1/demo/proto"
SENDER = "alice"
RECEIVERS = ("bob", "carol")
LISTENER = "listener"
# The receiver that misses what the listener misses.
BESIDE_LISTENER = RECEIVERS[0]

CONDITIONS = NetworkConditions(loss=0.2, duplicate=0.05, delay_ms=(5, 40), reorder=0.1)
PARITY_RATE = 0.5
EPOCH_SIZE_MS = 5_000
SEGMENT_SIZE_BYTES = 102_400
# Leopard works on multiples of this; 64 of them are the smallest file that still makes a picture.
SEGMENT_SIZE_BYTES_MIN = 64
DATA_SEGMENTS_MIN = 64
FILE_BYTES_MIN = SEGMENT_SIZE_BYTES_MIN * DATA_SEGMENTS_MIN
# With this share of its segments an epoch, a send takes three of them: long enough that lost segments are sent again.
QUOTA_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """How one file is sent.

    Attributes:
        config: Configuration of all three channels.
        data_segment_count: Data segments of the file.
        parity_segment_count: Parity segments of the file.
    """

    config: ChannelConfig
    data_segment_count: int
    parity_segment_count: int

    @property
    def segment_count(self) -> int:
        return self.data_segment_count + self.parity_segment_count

    def missing_data(self, heard: Collection[int]) -> list[int]:
        """Data segments that are not among those heard."""
        return [ordinal for ordinal in range(self.data_segment_count) if ordinal not in heard]


def largest_file_bytes() -> int:
    """The largest file that one message holds at the demo's parity."""
    return native_parameters(segmentation_of(SEGMENT_SIZE_BYTES)).max_payload_bytes


def plan_demo(file_bytes: int) -> DemoPlan:
    """Chooses segment size and quota for a file.

    Raises:
        PayloadTooLargeError: One message does not hold it; names both numbers.
        ShardwireError: It is too small to make `DATA_SEGMENTS_MIN` segments.
    """
    limit_bytes = largest_file_bytes()
    if file_bytes > limit_bytes:
        raise PayloadTooLargeError(
            f"the file has {file_bytes:,} bytes and one message holds {limit_bytes:,} at parity_rate={PARITY_RATE}: "
            "take a smaller file",
            file_bytes,
            limit_bytes,
        )
    if file_bytes < FILE_BYTES_MIN:
        raise ShardwireError(
            f"the file has {file_bytes:,} bytes and the demo needs {FILE_BYTES_MIN:,}: take a larger file"
        )
    segmentation = segmentation_of(_segment_size_bytes(file_bytes))
    data_segments, parity_segments = native_parameters(segmentation).segment_counts(file_bytes)
    config = ChannelConfig.logos(
        segmentation=segmentation,
        delivered_when=len(RECEIVERS),
        rate_limit=RateLimitConfig(
            enabled=True,
            epoch_size_ms=EPOCH_SIZE_MS,
            messages_per_epoch=math.ceil(QUOTA_SHARE * (data_segments + parity_segments)),
            counts="segment",
        ),
    ).without_store(members=1 + len(RECEIVERS))
    return DemoPlan(config, data_segments, parity_segments)


def segmentation_of(segment_size_bytes: int = SEGMENT_SIZE_BYTES) -> SegmentationConfig:
    """The demo's parity and code, over segments of a size."""
    return SegmentationConfig(
        segment_size_bytes=segment_size_bytes, enable_reed_solomon=True, parity_rate=PARITY_RATE, erasure_code="leopard"
    )


def _segment_size_bytes(file_bytes: int) -> int:
    """The usual size, or what makes at least `DATA_SEGMENTS_MIN` data segments of a smaller file."""
    fitting = file_bytes // DATA_SEGMENTS_MIN
    return min(SEGMENT_SIZE_BYTES, fitting - fitting % SEGMENT_SIZE_BYTES_MIN)
