"""What a reassembler says of one segment."""

from __future__ import annotations

from typing import TypeAlias

from shardwire._native import PayloadReconstructed, SegmentDiscarded, SegmentStored, SetDropped

ReceiveOutcome: TypeAlias = SegmentStored | PayloadReconstructed | SegmentDiscarded | SetDropped
"""Every outcome of `Reassembler.receive`, for an exhaustive `match`."""
