"""How much of a transport message is left for a segment (specification 003, Outgoing message processing, step 1)."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable
from dataclasses import dataclass, replace

from shardwire._native import WakuMessage
from shardwire.channel.hooks import is_ours
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError

logger = logging.getLogger(__name__)

# SegmentMessageProto around a segment's payload: at most 100 bytes on every wire.
SEGMENT_OVERHEAD_BYTES_MAX = 100
# Under `lip243` the configured size already is that of the serialized segment, and cannot be smaller than this.
LIP243_SEGMENT_BYTES_MIN = 192
# RateLimitProto of 17/WAKU2-RLN-RELAY: a proof of 128 bytes and seven values of 32, with their tags, rounded up.
# A relay that proves adds it to the message that we measured.
RATE_LIMIT_PROOF_BYTES = 384
LEOPARD_ALIGNMENT_BYTES = 64
# The id (64 characters at most by our rules), the hint and the tags of one history entry, beside the sender it names.
_HISTORY_ENTRY_BYTES = 64 + 32 + 12
# The frame of a message with its own id (at most 112 bytes), and an entry that names the longest id a peer may use:
# 256 characters of up to 4 bytes, and 14 bytes around them.
_IDS_AND_ONE_ENTRY_BYTES = 112 + 14 + 4 * 256
_BLOOM_FRAME_BYTES = 64
_CIPHER_PROBE_BYTES = 1_024
# Covers the block of every block cipher in use, whose padding depends on the length.
_CIPHER_PROBES = 65
# Ciphertexts of the longest contents, which must fit.
_CIPHER_EDGE_PROBES = 4
CIPHER_BYTES_ASSUMED = 1_024


@dataclass(frozen=True, slots=True)
class MessageBudget:
    """How one transport message is divided.

    Attributes:
        sds_bytes_max: The largest SDS message that still fits once encrypted and enveloped.
        header_bytes_max: What SDS may add to a content.
        segmentation: The configuration with the segment size that is left.
        content_bytes_max: The largest content handed to SDS.
    """

    sds_bytes_max: int
    header_bytes_max: int
    segmentation: SegmentationConfig
    content_bytes_max: int


def envelope_overhead_bytes(content_topic: str, meta: bytes, payload_bytes: int) -> int:
    """What a WakuMessage adds to a payload of `payload_bytes`, with every field that any node may set."""
    message = WakuMessage(
        payload=b"",
        content_topic=content_topic,
        version=0xFFFFFFFF,
        timestamp_ns=-1,
        meta=meta or None,
        rate_limit_proof=bytes(RATE_LIMIT_PROOF_BYTES),
        ephemeral=True,
    )
    # The empty payload was counted with a length of one byte at most; a real one needs up to five.
    return len(message.encode()) + 1 + _varint_bytes(payload_bytes)


def payload_bytes_max(max_message_size_bytes: int, content_topic: str, meta: bytes) -> int:
    """The largest payload of an envelope that a node with messages of this size carries; may be negative."""
    return max_message_size_bytes - envelope_overhead_bytes(content_topic, meta, max_message_size_bytes)


async def cipher_overhead_bytes(encryption: Encryption | None, ciphertext_bytes_max: int) -> int:
    """What a cipher adds to a message whose ciphertext just fits, as it says itself or as measured.

    One that grows in proportion, as base64 does, is measured at the size that it is used at. One that cannot encrypt
    now, say because its keys come later, is taken to add `CIPHER_BYTES_ASSUMED`; until it can, each send fails by
    itself.

    Args:
        encryption: The cipher; None for none.
        ciphertext_bytes_max: What its ciphertexts may take.

    Raises:
        ConfigError: `overhead_bytes` is no count, or `encrypt` gives no bytes.
    """
    if encryption is None:
        return 0
    stated = getattr(encryption, "overhead_bytes", None)
    if stated is not None:
        if isinstance(stated, bool) or not isinstance(stated, int) or stated < 0:
            raise ConfigError(f"overhead_bytes of the encryption is {stated!r}: it must be an integer of at least 0")
        return stated
    overhead = 0
    try:
        # Well below the edge: what grows in proportion adds no more there.
        shortest = max(0, min(_CIPHER_PROBE_BYTES, ciphertext_bytes_max // 4))
        for length in range(shortest, shortest + _CIPHER_PROBES):
            overhead = max(overhead, await _ciphertext_bytes(encryption, length) - length)
        length = await _longest_that_fits(encryption, ciphertext_bytes_max - overhead, ciphertext_bytes_max)
    except ConfigError:
        raise
    except BaseException as error:
        if is_ours(error):
            raise
        logger.warning(
            "the encryption raised %s when its overhead was measured: %d bytes are assumed; state overhead_bytes",
            type(error).__name__,
            CIPHER_BYTES_ASSUMED,
        )
        return CIPHER_BYTES_ASSUMED
    return max(overhead, ciphertext_bytes_max - length)


async def _longest_that_fits(encryption: Encryption, length: int, ciphertext_bytes_max: int) -> int:
    """The length of contents, from `length` down, whose ciphertexts fit; the few just below it are tried too."""
    below = 0
    while length > 0 and below < _CIPHER_EDGE_PROBES:
        ciphertext_bytes = await _ciphertext_bytes(encryption, max(0, length - below))
        if ciphertext_bytes <= ciphertext_bytes_max:
            below += 1
            continue
        # By as much as it is too long in proportion, which leads to the edge in a few steps.
        length = min(length - 1, length * ciphertext_bytes_max // ciphertext_bytes)
        below = 0
    return max(0, length)


async def _ciphertext_bytes(encryption: Encryption, length: int) -> int:
    ciphertext = encryption.encrypt(bytes(length))
    if inspect.isawaitable(ciphertext):
        ciphertext = await _resolved(ciphertext)
    try:
        return memoryview(ciphertext).nbytes
    except TypeError:
        name = type(ciphertext).__name__
        raise ConfigError(f"encrypt of the encryption gave a {name}: it must give bytes") from None


async def _resolved(ciphertext: Awaitable[bytes]) -> bytes:
    return await ciphertext


def divide_message(
    config: ChannelConfig,
    *,
    max_message_size_bytes: int,
    content_topic: str,
    channel_id: str,
    sender_id: str,
    cipher_bytes: int,
) -> MessageBudget:
    """Divides a transport message between envelope, cipher, SDS header and segment.

    The configured segment size is kept where it fits; SDS then gets everything else, since a longer list of what was
    received saves messages. On a node with small messages the segment shrinks, and the header with it.

    Raises:
        ConfigError: The node's messages are too small to carry anything.
    """
    meta = config.envelope_meta or b""
    sds_bytes_max = payload_bytes_max(max_message_size_bytes, content_topic, meta) - cipher_bytes
    least_header = _least_header_bytes(channel_id, sender_id)
    wanted_header = _wanted_header_bytes(config, channel_id, sender_id)
    framing = 0 if config.segmentation.wire_format == "lip243" else SEGMENT_OVERHEAD_BYTES_MAX
    least_segment = LIP243_SEGMENT_BYTES_MIN if config.segmentation.wire_format == "lip243" else LEOPARD_ALIGNMENT_BYTES
    if sds_bytes_max < least_header + framing + least_segment:
        needed = max_message_size_bytes - sds_bytes_max + least_header + framing + least_segment
        raise ConfigError(
            f"max_message_size_bytes of the node is {max_message_size_bytes}: with this content topic, channel id, "
            f"sender id and cipher it must be at least {needed}"
        )
    header = max(least_header, min(wanted_header, sds_bytes_max // 2))
    segment = min(config.segmentation.segment_size_bytes, sds_bytes_max - header - framing)
    codes = config.segmentation.enable_reed_solomon or config.parity_on_demand
    segment = _aligned(config.segmentation, max(segment, least_segment), codes)
    content = segment + framing
    return MessageBudget(
        sds_bytes_max=sds_bytes_max,
        header_bytes_max=sds_bytes_max - content,
        segmentation=replace(config.segmentation, segment_size_bytes=segment),
        content_bytes_max=content,
    )


def _least_header_bytes(channel_id: str, sender_id: str) -> int:
    """What SDS needs for ids and one history entry, without which nothing is ever acknowledged."""
    return len(channel_id.encode()) + len(sender_id.encode()) + _IDS_AND_ONE_ENTRY_BYTES


def _wanted_header_bytes(config: ChannelConfig, channel_id: str, sender_id: str) -> int:
    """The configured causal history and the bloom filter."""
    history = config.sds.causal_history_size * (_HISTORY_ENTRY_BYTES + len(sender_id.encode()))
    bits = math.ceil(-math.log(config.sds.bloom_filter_error_rate) / math.log(2) ** 2)
    bloom = config.sds.bloom_filter_capacity * bits // 8 + _BLOOM_FRAME_BYTES
    return _least_header_bytes(channel_id, sender_id) + history + bloom


def _aligned(segmentation: SegmentationConfig, size: int, codes: bool) -> int:
    if segmentation.wire_format == "lip243" or segmentation.erasure_code != "leopard":
        return size
    if not codes:
        return size
    return size - size % LEOPARD_ALIGNMENT_BYTES


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
