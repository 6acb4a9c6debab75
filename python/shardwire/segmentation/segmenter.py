"""Payload to segments, and what one segment says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, overload

from shardwire import _native
from shardwire.config import SegmentationConfig, SegmentWireFormat
from shardwire.config.checks import check_integer
from shardwire.errors import ConfigError
from shardwire.segmentation.parameters import native_parameters

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

# Segments that one message may have: their indices are bytes (segmentation 002, Validation).
SEGMENTS_MAX = 256


class ArrowArray(Protocol):
    """An array that crosses the Arrow C data interface, such as one of pyarrow."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Two capsules: the schema and the array."""


class ArrowChunkedArray(Protocol):
    """An array in chunks that crosses the Arrow C stream interface, such as one of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """A capsule: the stream of the chunks."""


def segment(payload: Buffer, config: SegmentationConfig) -> list[bytes]:
    """The transport messages that carry a payload, data segments first (segmentation 002, Sending).

    Args:
        payload: Any buffer; `bytes` is read in place.
        config: Size, wire and parity.

    Returns:
        Each is one transport message. Under `draft` a payload of at most `segment_size_bytes` is the only one,
        unmodified.

    Raises:
        PayloadTooLargeError: The payload needs more segments than one message may have; carries both numbers.
        ConfigError: Under `draft`, a small payload that is empty or itself reads as a segment; `config` is none.
    """
    return _native.segment(payload, native_parameters(config))


@overload
def segment_many(payloads: ArrowArray, config: SegmentationConfig) -> pa.Array[Any]: ...
@overload
def segment_many(payloads: ArrowChunkedArray, config: SegmentationConfig) -> pa.ChunkedArray[Any]: ...
@overload
def segment_many(payloads: Iterable[Buffer], config: SegmentationConfig) -> list[list[bytes]]: ...
def segment_many(payloads: Any, config: SegmentationConfig) -> Any:
    """As `segment` for many payloads, whose hashes are computed side by side.

    Args:
        payloads: Buffers; `bytes` is read in place. Or an Arrow binary array, chunked or not, which is read in
            place too.
        config: Size, wire and parity.

    Returns:
        For buffers a list with the transport messages of each, `list[list[bytes]]`. For an Arrow array a list array of
        binary, in which a null stays null.

    Raises:
        PayloadTooLargeError: As `segment`, for the first payload that fails.
        ConfigError: Likewise; and where the segments of an Arrow array do not fit one.
    """
    return _native.segment_many(payloads, native_parameters(config))


@overload
def reassemble_many(batches: ArrowArray, config: SegmentationConfig) -> pa.Array[Any]: ...
@overload
def reassemble_many(batches: ArrowChunkedArray, config: SegmentationConfig) -> pa.ChunkedArray[Any]: ...
@overload
def reassemble_many(batches: Iterable[Iterable[Buffer]], config: SegmentationConfig) -> list[bytes | None]: ...
def reassemble_many(batches: Any, config: SegmentationConfig) -> Any:
    """The payload of each batch of segments, for batches that hold all there is of one payload.

    Hashes are computed side by side, so that many payloads take a fraction of the time of as many reassemblers. Losses
    are repaired, repeats and wrong segments left out, as by a `Reassembler`; nothing is kept between calls.

    Args:
        batches: Each the transport messages of one payload, in any order. Or an Arrow list array of binary,
            chunked or not.
        config: The wire and the code tried first. Of its limits `candidates_per_slot_max` and `work_budget` count: the
            caller holds everything already.

    Returns:
        For buffers the payloads, `list[bytes | None]`, None where a batch gives none that has its hash; a
        `Reassembler` says why. For an Arrow array a binary array, null there.

    Raises:
        ConfigError: The segments of an Arrow array exceed what one array holds. Nothing is raised for what segments
            contain.
    """
    parameters = native_parameters(config)
    limits = config.limits
    return _native.reassemble_many(batches, parameters, limits.candidates_per_slot_max, limits.work_budget)


def inspect(
    segment: Buffer, wire_format: SegmentWireFormat = "raw", *, max_total_segments: int = 256
) -> _native.SegmentHeader | None:
    """What one segment says of itself, validated (segmentation 002, Validation).

    Args:
        segment: The bytes of one transport message.
        wire_format: The wire to read them as.
        max_total_segments: The most data and parity segments accepted together, from 1 to 256.

    Returns:
        The header; None where `draft` reads the bytes as a whole message.

    Raises:
        InvalidSegmentError: The bytes are no valid segment; nothing else is raised for what they contain.
        ConfigError: No such wire, or a limit out of range: names the value.
    """
    if not isinstance(wire_format, str):
        raise ConfigError(f"wire_format is {wire_format!r}: it must be 'raw', 'draft' or 'lip243'")
    check_integer("max_total_segments", max_total_segments, 1, SEGMENTS_MAX)
    return _native.inspect_segment(segment, wire_format, max_total_segments)
