"""Every option of shardwire, as frozen dataclasses that refuse wrong values when they are made.

Times are integers in milliseconds (`_ms`), sizes in bytes (`_bytes`). `ChannelConfig.logos()` holds the defaults of
Logos 003, `ChannelConfig.waku()` those of Waku 004.
"""

from __future__ import annotations

from shardwire.config.channel import (
    ChannelChanges,
    ChannelConfig,
    DeliveredWhen,
    Redelivery,
    ReliableChannelOptions,
    Repair,
)
from shardwire.config.rate_limit import RateCounts, RateLimitConfig
from shardwire.config.sds import MessageIdRule, SdsConfig, SdsWireFormat, SyncConfig
from shardwire.config.segmentation import (
    MEBIBYTE,
    ErasureCode,
    ReassemblyLimits,
    SegmentationConfig,
    SegmentWireFormat,
)

__all__ = [
    "MEBIBYTE",
    "ChannelChanges",
    "ChannelConfig",
    "DeliveredWhen",
    "ErasureCode",
    "MessageIdRule",
    "RateCounts",
    "RateLimitConfig",
    "ReassemblyLimits",
    "Redelivery",
    "ReliableChannelOptions",
    "Repair",
    "SdsConfig",
    "SdsWireFormat",
    "SegmentWireFormat",
    "SegmentationConfig",
    "SyncConfig",
]
