"""From a message to the contents that SDS carries (003, Outgoing message processing, step 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shardwire._native import SegmentationParameters, keccak256, segment, segment_message
from shardwire.config import SegmentationConfig
from shardwire.errors import PayloadTooLargeError
from shardwire.segmentation.parameters import native_parameters

# Hashing and coding a message of this size takes milliseconds, during which the event loop should go on.
THREAD_BYTES_MIN = 1 << 20
EMPTY_REFUSED = "the message is empty, which the draft segment wire cannot carry"


@dataclass(slots=True)
class Prepared:
    """A segmented message; not frozen, as one is made for each.

    Attributes:
        contents: Data segments in order, then parity segments; none of an empty message that the wire cannot carry.
        data_count: Data segments.
        message_id: Hex Keccak-256 of the payload.
        reserve: Parity that can be made on demand.
    """

    contents: list[bytes] = field(repr=False)
    data_count: int
    message_id: str
    reserve: int = 0


class ChannelSegmenter:
    """Segments the messages of one channel.

    Args:
        segmentation: With the segment size that the node's messages leave.
        first_parity: How much parity a message leaves with, for a million data segments, where more is made as
            receivers need it; None where all of it is made at once.
    """

    def __init__(self, segmentation: SegmentationConfig, first_parity: Callable[[], int] | None = None) -> None:
        self._first_parity = first_parity
        self._carries_empty = segmentation.wire_format != "draft"
        self.use(segmentation)

    def use(self, segmentation: SegmentationConfig) -> None:
        """Segments later messages so."""
        self._segment_size_bytes = segmentation.segment_size_bytes
        # Looked up by all its fields at every message they would cost more than to segment a small one.
        self._parameters = native_parameters(segmentation)
        self._single = native_parameters(replace(segmentation, enable_reed_solomon=False))

    async def prepare(self, payload: bytes) -> Prepared:
        """The segments of a message.

        Raises:
            PayloadTooLargeError: The payload exceeds what one message can hold.
        """
        if not payload and not self._carries_empty:
            return Prepared([], 1, keccak256(payload).hex())
        # As it is set now: the thread may begin later.
        chosen = self._parameters, None if self._first_parity is None else self._first_parity()
        try:
            if len(payload) < THREAD_BYTES_MIN:
                return _segmented(payload, *chosen)
            return await asyncio.get_running_loop().run_in_executor(None, _segmented, payload, *chosen)
        except PayloadTooLargeError as error:
            size, limit = error.payload_bytes, error.limit_bytes
            remedy = "send it with send_file(), which takes any size, or in parts"
            raise PayloadTooLargeError(
                f"the message has {size} bytes and one of this channel holds {limit}: {remedy}", size, limit
            ) from None

    def prepare_ephemeral(self, payload: bytes) -> bytes | None:
        """The one content of an ephemeral message; None for an empty one that the wire cannot carry.

        Raises:
            PayloadTooLargeError: The payload does not fit one segment.
        """
        if not payload and not self._carries_empty:
            return None
        limit = self._segment_size_bytes
        # By its length first: nothing is made of what is refused, however large it is.
        contents = segment(payload, self._single) if len(payload) <= limit else []
        if len(contents) != 1:
            raise PayloadTooLargeError(
                f"an ephemeral message of {len(payload)} bytes does not fit one segment of {limit} bytes: send it with "
                "send(), or shorten it",
                len(payload),
                limit,
            )
        return contents[0]

    async def message_id_of(self, payload: bytes) -> str:
        """Hex Keccak-256 of a message, of a large one in a thread: what is refused for its size may have any."""
        if len(payload) < THREAD_BYTES_MIN:
            return keccak256(payload).hex()
        return (await asyncio.get_running_loop().run_in_executor(None, keccak256, payload)).hex()


def _segmented(payload: bytes, parameters: SegmentationParameters, first_parity: int | None) -> Prepared:
    return Prepared(*segment_message(payload, parameters, first_parity))
