"""Payload to segments, and what one segment says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shardwire import _native
from shardwire.config import SegmentationConfig, SegmentWireFormat
from shardwire.segmentation.parameters import native_parameters

if TYPE_CHECKING:
    from typing_extensions import Buffer


def segment(payload: Buffer, config: SegmentationConfig) -> list[bytes]:
    """The transport messages that carry a payload, data segments first (specification 002, Sending).

    Args:
        payload: Any buffer; `bytes` is read in place.
        config: Size, wire and parity.

    Returns:
        Each is one transport message. Under `draft` a payload of at most `segment_size_bytes` is the only one,
        unmodified.

    Raises:
        PayloadTooLargeError: The payload needs more segments than one message may have; carries both numbers.
        ConfigError: Under `draft`, a small payload that is empty or itself reads as a segment.
    """
    return _native.segment(payload, native_parameters(config))


def segment_many(payloads: Iterable[Buffer], config: SegmentationConfig) -> list[list[bytes]]:
    """As `segment` for many payloads, whose hashes are computed side by side.

    Raises:
        PayloadTooLargeError: As `segment`, for the first payload that fails.
        ConfigError: Likewise.
    """
    return _native.segment_many(payloads, native_parameters(config))


def inspect(
    segment: Buffer, wire_format: SegmentWireFormat = "raw", *, max_total_segments: int = 256
) -> _native.SegmentHeader | None:
    """What one segment says of itself, validated (specification 002, Validation).

    Args:
        segment: The bytes of one transport message.
        wire_format: The wire to read them as.
        max_total_segments: The most data and parity segments accepted together.

    Returns:
        The header; None where `draft` reads the bytes as a whole message.

    Raises:
        InvalidSegmentError: The bytes are no valid segment; nothing else is raised for what they contain.
    """
    return _native.inspect_segment(segment, wire_format, max_total_segments)
