"""Payloads to segments and back (segmentation 000, 001, 002 and LIP-243).

Thin: the bytes are handled by the native core. Nothing here reads a clock, sleeps or does I/O; time is an argument.
"""

from shardwire._native import (
    PayloadReconstructed,
    SegmentDiscarded,
    SegmentHeader,
    SegmentStored,
    SetDropped,
)
from shardwire.config import ReassemblyLimits, SegmentationConfig
from shardwire.segmentation.outcomes import ReceiveOutcome
from shardwire.segmentation.reassembler import Reassembler
from shardwire.segmentation.segmenter import ArrowArray, inspect, reassemble_many, segment, segment_many

__all__ = [
    "ArrowArray",
    "PayloadReconstructed",
    "Reassembler",
    "ReassemblyLimits",
    "ReceiveOutcome",
    "SegmentDiscarded",
    "SegmentHeader",
    "SegmentStored",
    "SegmentationConfig",
    "SetDropped",
    "inspect",
    "reassemble_many",
    "segment",
    "segment_many",
]
