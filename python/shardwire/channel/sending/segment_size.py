"""How much of a transport message is left for a segment (specification 003, Outgoing message processing, step 1)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from shardwire._native import WakuMessage
from shardwire._native import divide_message as native_divide_message
from shardwire.channel.cipher_calls import CIPHER_TIMEOUT_MS, encrypted
from shardwire.channel.hooks import is_ours
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.config.checks import check_integer
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError
from shardwire.segmentation.parameters import native_parameters

logger = logging.getLogger(__name__)

# RateLimitProto of 17/WAKU2-RLN-RELAY: a proof of 128 bytes and seven values of 32, with their tags, rounded up.
# A relay that proves adds it to the message that we measured.
RATE_LIMIT_PROOF_BYTES = 384
_CIPHER_PROBE_BYTES = 1_024
# Covers the block of every block cipher in use, whose padding depends on the length.
_CIPHER_PROBES = 65
# Ciphertexts of the longest contents, which must fit.
_CIPHER_EDGE_PROBES = 4
CIPHER_BYTES_ASSUMED = 1_024
# No cipher adds so much, and every message of a node is smaller.
_CIPHER_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class MessageBudget:
    """How one transport message is divided.

    Attributes:
        header_bytes_max: What SDS may add to a content.
        segmentation: The configuration with the segment size that is left.
        content_bytes_max: The largest content handed to SDS.
    """

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
    return len(message.encode()) + 1 + max(1, (payload_bytes.bit_length() + 6) // 7)


def payload_bytes_max(max_message_size_bytes: int, content_topic: str, meta: bytes) -> int:
    """The largest payload of an envelope that a node with messages of this size carries; may be negative."""
    return max_message_size_bytes - envelope_overhead_bytes(content_topic, meta, max_message_size_bytes)


async def cipher_overhead_bytes(encryption: Encryption | None, ciphertext_bytes_max: int) -> int:
    """What a cipher adds to a message whose ciphertext just fits, as it says itself or as measured.

    One that grows in proportion, as base64 does, is measured at the size that it is used at. One that cannot
    encrypt now, say because its keys come later, or not within `CIPHER_TIMEOUT_MS`, is taken to add
    `CIPHER_BYTES_ASSUMED`; until it can, each send fails by itself.

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
        return check_integer("overhead_bytes of the encryption", stated, 0, _CIPHER_BYTES_MAX)
    overhead = 0
    try:
        # Well below the edge: what grows in proportion adds no more there.
        shortest = max(0, min(_CIPHER_PROBE_BYTES, ciphertext_bytes_max // 4))
        async with asyncio.timeout(CIPHER_TIMEOUT_MS / 1000):
            for length in range(shortest, shortest + _CIPHER_PROBES):
                overhead = max(overhead, len(await encrypted(encryption, bytes(length))) - length)
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
        ciphertext_bytes = len(await encrypted(encryption, bytes(max(0, length - below))))
        if ciphertext_bytes <= ciphertext_bytes_max:
            below += 1
            continue
        # By as much as it is too long in proportion, which leads to the edge in a few steps.
        length = min(length - 1, length * ciphertext_bytes_max // ciphertext_bytes)
        below = 0
    return max(0, length)


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

    Raises:
        ConfigError: The node's messages are too small to carry anything.
    """
    sds_bytes_max = payload_bytes_max(max_message_size_bytes, content_topic, config.envelope_meta or b"") - cipher_bytes
    segmentation = config.segmentation
    segment, content = native_divide_message(
        max_message_size_bytes,
        max_message_size_bytes - sds_bytes_max,
        channel_id,
        sender_id,
        config.sds,
        config.sync,
        native_parameters(segmentation),
        has_parity=segmentation.enable_reed_solomon or config.parity_on_demand,
    )
    return MessageBudget(
        header_bytes_max=sds_bytes_max - content,
        segmentation=replace(segmentation, segment_size_bytes=segment),
        content_bytes_max=content,
    )
