"""Last segments that travel padded with zeros (specification 002: padding where Reed-Solomon coding is enabled)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shardwire.config import SegmentWireFormat
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    ReceiveOutcome,
    SegmentationConfig,
    SegmentStored,
    SetDropped,
    reassemble_many,
    segment,
)
from tests.protobuf_fields import field, fields_of

SIZE = 192
RAW = SegmentationConfig(segment_size_bytes=SIZE, enable_reed_solomon=True, parity_rate=0.5)
HEAD = random.Random(9).randbytes(3 * SIZE)


def padded(data: bytes) -> bytes:
    """The segment with zeros up to the segment size, as some senders send the last one."""
    parts = dict(fields_of(data))
    # lip243 counts its fields otherwise.
    number = max(number for number, value in parts.items() if isinstance(value, bytes))
    content = parts[number]
    assert isinstance(content, bytes)
    parts[number] = content.ljust(SIZE, b"\0")
    return b"".join(field(number, parts[number]) for number in sorted(parts))


def received(reassembler: Reassembler, *segments: bytes) -> list[ReceiveOutcome]:
    return [reassembler.receive(one, now_ms=0, sender="alice") for one in segments]


def payloads(outcomes: list[ReceiveOutcome]) -> list[bytes]:
    return [outcome.payload for outcome in outcomes if isinstance(outcome, PayloadReconstructed)]


def test_padding_of_a_recovered_last_segment_goes_though_the_payload_ends_in_zeros() -> None:
    for zeros in (0, 1, 3, SIZE - 1):
        payload = HEAD + bytes(zeros + 1)
        segments = segment(payload, RAW)
        assert payloads(received(Reassembler(RAW), *segments[:3], segments[5])) == [payload]


def test_a_padded_last_segment_is_accepted() -> None:
    *data, last = segment(HEAD + b"tail", RAW)[:4]
    assert payloads(received(Reassembler(RAW), *data, padded(last))) == [HEAD + b"tail"]


@pytest.mark.parametrize("zeros", [1, SIZE // 2, SIZE - 1])
def test_a_padded_tail_of_zeros_is_found_though_the_wrong_code_is_tried_first(zeros: int) -> None:
    payload = HEAD[:SIZE] + bytes(zeros)
    _, last, parity, _ = segment(payload, replace(RAW, erasure_code="vandermonde", parity_rate=1.0))
    assert payloads(received(Reassembler(RAW), padded(last), parity)) == [payload]


@pytest.mark.parametrize(
    ("wire_format", "count"),
    # draft sends what fits one segment unmodified.
    [("raw", 1), ("raw", 2), ("raw", 7), ("draft", 2), ("draft", 7), ("lip243", 1), ("lip243", 2), ("lip243", 7)],
)
def test_a_padded_tail_is_accepted_where_the_rate_gives_no_parity(wire_format: SegmentWireFormat, count: int) -> None:
    size = SIZE + (128 if wire_format == "lip243" else 0)
    config = replace(RAW, wire_format=wire_format, segment_size_bytes=size, parity_rate=0.0)
    for tail in (b"tail", b"tail\0\0", b"\0", bytes(SIZE - 1)):
        payload = HEAD[:SIZE] * (count - 1) + tail
        segments = segment(payload, config)
        assert len(segments) == count
        wire = [*segments[:-1], padded(segments[-1])]
        assert payloads(received(Reassembler(config), *wire)) == [payload]
        assert reassemble_many([wire], config) == [payload]


def test_of_a_padded_tail_no_more_ends_are_tried_than_allowed() -> None:
    config = replace(RAW, parity_rate=0.0, max_tail_candidates=10)
    for head in (b"", HEAD[:SIZE]):
        # A tail in a segment of its own may be empty, one behind others has a byte at least.
        first = 1 if head else 0
        for zeros, is_found in ((first + 9, True), (first + 10, False), (SIZE, True)):
            *before, last = segment(head + bytes(zeros), config)
            assert bool(payloads(received(Reassembler(config), *before, padded(last)))) == is_found


def test_forged_zeros_leave_a_set_without_parity_open() -> None:
    config = replace(RAW, parity_rate=0.0)
    first, last = segment(HEAD[:SIZE] + b"tail", config)
    reassembler = Reassembler(config)
    forged = padded(last).replace(b"tail", bytes(4))
    _, held, done = received(reassembler, first, forged, padded(last))
    assert isinstance(held, SegmentStored)
    assert held.hash_mismatch
    assert payloads([done]) == [HEAD[:SIZE] + b"tail"]
    [alone] = segment(b"alone", config)
    dropped, done = received(reassembler, padded(alone).replace(b"alone", bytes(5)), padded(alone))
    assert isinstance(dropped, SetDropped)
    assert payloads([done]) == [b"alone"]
