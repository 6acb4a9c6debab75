"""What is left for a segment: no wire message may ever exceed the node's maximum."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwire._native import WakuMessage, segment_message
from shardwire.channel.sending.segment_size import (
    CIPHER_BYTES_ASSUMED,
    MessageBudget,
    cipher_overhead_bytes,
    divide_message,
)
from shardwire.config import ChannelConfig, SegmentationConfig, SegmentWireFormat
from shardwire.errors import ConfigError
from shardwire.segmentation import segment
from shardwire.segmentation.parameters import native_parameters

TOPIC = "/shardwire/1/test/proto"


class PaddingCipher:
    """A block cipher: its overhead depends on the length, and it does not say how."""

    def encrypt(self, content: bytes) -> bytes:
        return bytes(16) + content + bytes(16 - len(content) % 16)

    async def decrypt(self, payload: bytes) -> bytes:
        return payload


class AsyncCipher:
    async def encrypt(self, content: bytes) -> bytes:
        return content + bytes(28)


class StatingCipher:
    overhead_bytes: object = 33

    def encrypt(self, content: bytes) -> bytes:
        raise AssertionError("the overhead is stated")


def overhead(encryption: Any, ciphertext_bytes_max: int = 149_000) -> int:
    return asyncio.run(cipher_overhead_bytes(encryption, ciphertext_bytes_max))


def budget_of(
    config: ChannelConfig, *, max_message_size_bytes: int = 150_000, sender_id: str = "alice", cipher_bytes: int = 0
) -> MessageBudget:
    return divide_message(
        config,
        max_message_size_bytes=max_message_size_bytes,
        content_topic=TOPIC,
        channel_id="channel",
        sender_id=sender_id,
        cipher_bytes=cipher_bytes,
    )


def test_overhead_is_stated_or_measured() -> None:
    assert overhead(None) == 0
    assert overhead(PaddingCipher()) == 32
    assert overhead(AsyncCipher()) == 28
    assert overhead(StatingCipher()) == 33


@pytest.mark.parametrize("ciphertext_bytes_max", [2_000, 149_000, 149_001, 149_002, 149_003])
@pytest.mark.parametrize(
    "encrypt",
    [
        base64.b64encode,
        lambda content: content.hex().encode(),
        lambda content: base64.b64encode(PaddingCipher().encrypt(content)),
        lambda content: content + bytes(len(content) // 1_000 + 5),
        lambda content: content + bytes(1_900),
    ],
    ids=["base64", "hex", "padded base64", "a byte in a thousand", "much"],
)
def test_a_cipher_that_grows_in_proportion_is_measured_at_the_edge(
    encrypt: Callable[[bytes], bytes], ciphertext_bytes_max: int
) -> None:
    class Growing:
        def encrypt(self, content: bytes) -> bytes:
            return encrypt(content)

    longest = ciphertext_bytes_max - overhead(Growing(), ciphertext_bytes_max)
    assert longest > 0
    assert all(
        len(encrypt(bytes(length))) <= ciphertext_bytes_max for length in range(max(0, longest - 300), longest + 1)
    )
    # Little is wasted: what it ever pads at most.
    assert len(encrypt(bytes(longest + 64))) > ciphertext_bytes_max


def test_a_cipher_that_leaves_no_room_adds_all_there_is() -> None:
    class Bloated:
        def encrypt(self, content: bytes) -> bytes:
            return bytes(5_000)

    assert overhead(Bloated(), 4_000) >= 4_000


def test_a_cipher_without_its_keys_yet_is_given_room() -> None:
    class KeylessCipher:
        def encrypt(self, content: bytes) -> bytes:
            raise KeyError("no key yet")

    assert overhead(KeylessCipher()) == CIPHER_BYTES_ASSUMED


@pytest.mark.parametrize("stated", [-1, 1.5, "33", True, (1 << 30) + 1, 10**30])
def test_a_stated_overhead_must_be_a_count(stated: object) -> None:
    cipher = StatingCipher()
    cipher.overhead_bytes = stated
    with pytest.raises(ConfigError, match="overhead_bytes"):
        overhead(cipher)


def test_the_configured_size_is_kept_on_a_waku_node() -> None:
    budget = budget_of(ChannelConfig.logos(), cipher_bytes=33)
    assert budget.segmentation.segment_size_bytes == 102_400
    assert budget.header_bytes_max > 40_000


def test_a_small_node_shrinks_segment_and_header() -> None:
    config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=True))
    budget = budget_of(config, max_message_size_bytes=4_096, cipher_bytes=33)
    assert 1_000 < budget.segmentation.segment_size_bytes < 4_000
    assert budget.segmentation.segment_size_bytes % 64 == 0


def test_a_node_that_is_too_small_is_refused_with_the_size_it_needs() -> None:
    with pytest.raises(ConfigError, match="must be at least") as refused:
        budget_of(ChannelConfig.logos(), max_message_size_bytes=600)
    least = int(str(refused.value).rsplit(" ", 1)[1])
    budget_of(ChannelConfig.logos(), max_message_size_bytes=least)
    with pytest.raises(ConfigError):
        budget_of(ChannelConfig.logos(), max_message_size_bytes=least - 1)


@given(
    max_message_size_bytes=st.integers(2_500, 200_000),
    wire_format=st.sampled_from(["raw", "draft", "lip243"]),
    segment_size_bytes=st.integers(3, 1_700).map(lambda count: 64 * count),
    reed_solomon=st.booleans(),
    meta_bytes=st.integers(0, 64),
    cipher_bytes=st.integers(0, 64),
    sender_id=st.text(min_size=1, max_size=40),
)
def test_the_largest_sds_message_fits_the_node(
    max_message_size_bytes: int,
    wire_format: str,
    segment_size_bytes: int,
    reed_solomon: bool,
    meta_bytes: int,
    cipher_bytes: int,
    sender_id: str,
) -> None:
    """Envelope, proof, cipher, header at its limit and the largest segment together stay within the maximum."""
    config = ChannelConfig.logos(
        segmentation=SegmentationConfig(
            wire_format=wire_format,  # type: ignore[arg-type]
            segment_size_bytes=segment_size_bytes,
            enable_reed_solomon=reed_solomon,
        ),
        envelope_meta=bytes(meta_bytes) or None,
    )
    budget = budget_of(
        config, max_message_size_bytes=max_message_size_bytes, sender_id=sender_id, cipher_bytes=cipher_bytes
    )
    size = budget.segmentation.segment_size_bytes
    assert size <= segment_size_bytes
    payload = bytes(range(256)) * (3 * size // 256 + 1)
    largest = max(map(len, segment(payload, budget.segmentation)))
    assert largest <= budget.content_bytes_max
    message = WakuMessage(
        payload=bytes(largest + budget.header_bytes_max + cipher_bytes),
        content_topic=TOPIC,
        version=0xFFFFFFFF,
        timestamp_ns=-1,
        meta=config.envelope_meta,
        rate_limit_proof=bytes(384),
        ephemeral=True,
    )
    assert len(message.encode()) <= max_message_size_bytes


@pytest.mark.parametrize("wire_format", ["raw", "lip243"])
def test_whatever_parity_is_announced_a_segment_keeps_to_its_size(wire_format: SegmentWireFormat) -> None:
    """The numbers of its header take more bytes the larger they are."""
    config = SegmentationConfig(wire_format=wire_format, segment_size_bytes=256)
    parameters = native_parameters(config)
    chunk_bytes = parameters.chunk_size_bytes
    budget = budget_of(ChannelConfig.logos(segmentation=config))
    assert budget.segmentation.segment_size_bytes == 256
    limit = budget.content_bytes_max
    largest: set[int] = set()
    for count in range(1, 256):
        # All parity leaves at first, so that none of it is made later.
        contents, *_ = segment_message(bytes(count * chunk_bytes), parameters, 1_000_000)
        largest.add(max(map(len, contents)))
    assert len(largest) > 1
    assert max(largest) <= limit
