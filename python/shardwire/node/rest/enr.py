"""The cluster and shards in a node's record (EIP-778, 31/WAKU2-ENR, RELAY-SHARDING): read, not verified."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

_ENR_BYTES_MAX = 300


@dataclass(frozen=True, slots=True)
class RelayShards:
    """What a node serves."""

    cluster_id: int
    shards: frozenset[int]


def relay_shards(enr: str) -> RelayShards | None:
    """What an `enr:` text says; None where it says nothing, or is none."""
    text = enr.removeprefix("enr:")
    try:
        record = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        return None
    items = _rlp_items(record) if len(record) <= _ENR_BYTES_MAX else []
    # Signature and sequence number come first, then keys and values.
    fields = dict(zip(items[2::2], items[3::2], strict=False))
    listed, bits = fields.get(b"rs"), fields.get(b"rsv")
    if listed is not None and len(listed) >= 3:
        shards = listed[3:]
        numbers = frozenset(int.from_bytes(shards[at : at + 2], "big") for at in range(0, len(shards) - 1, 2))
        return RelayShards(int.from_bytes(listed[:2], "big"), numbers)
    if bits is not None and len(bits) >= 2:
        set_bits = frozenset(8 * at + bit for at, byte in enumerate(bits[2:]) for bit in range(8) if byte >> bit & 1)
        return RelayShards(int.from_bytes(bits[:2], "big"), set_bits)
    return None


def _rlp_items(data: bytes) -> list[bytes]:
    """The items of a list of byte strings; empty where it is none."""
    span = _rlp_span(data, 0)
    if span is None or not data or data[0] < 0xC0:
        return []
    at, end = span
    items = []
    while at < end:
        inner = _rlp_span(data, at)
        if inner is None or inner[1] > end:
            return []
        items.append(data[inner[0] : inner[1]])
        at = inner[1]
    return items


def _rlp_span(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the content of the item at `at` begins and ends."""
    if at >= len(data):
        return None
    head = data[at]
    if head < 0x80:
        return at, at + 1
    short, long = (0x80, 0xB7) if head < 0xC0 else (0xC0, 0xF7)
    if head <= long:
        begin, length = at + 1, head - short
    else:
        size = head - long
        begin, length = at + 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big")
    return (begin, begin + length) if begin + length <= len(data) else None
