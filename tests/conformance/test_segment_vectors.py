"""Segments equal those of nim-segmentation (LIP-243)."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.vector_files import load

from shardwire.segmentation import SegmentationConfig, inspect, segment

LIP243 = load("lip243")


@pytest.mark.parametrize("case", LIP243["cases"], ids=lambda case: case["name"])
def test_lip243_segments_are_read_as_upstream_wrote_them(case: dict[str, Any]) -> None:
    header = inspect(bytes.fromhex(case["wire_hex"]), wire_format="lip243")
    assert header is not None
    assert header.entire_message_hash.hex() == case["hash"]
    assert header.payload_length == case["length"]
    index = header.parity_segment_index if header.is_parity else header.data_segment_index
    assert index == case["index"]
    assert header.data_segment_count == case["data_segment_count"]
    assert header.parity_segment_count == case["parity_segment_count"]
    assert header.is_parity is case["is_parity"]
    assert header.segment_payload.hex() == case["payload"]


def test_an_empty_lip243_payload_is_written_as_upstream_writes_it() -> None:
    [case] = [case for case in LIP243["cases"] if case["name"] == "all default"]
    [written] = segment(b"", SegmentationConfig(wire_format="lip243"))
    # The vector's hash is made up; all after it is the same.
    assert written[:2] + written[34:] == bytes.fromhex(case["wire_hex"])[:2] + bytes.fromhex(case["wire_hex"])[34:]


def test_lip243_bounds_the_serialized_segment() -> None:
    config = SegmentationConfig(segment_size_bytes=1_000, wire_format="lip243", enable_reed_solomon=True)
    segments = segment(bytes(range(256)) * 40, config)
    assert max(map(len, segments)) <= 1_000
    header = inspect(segments[0], wire_format="lip243")
    assert header is not None
    # align_down_64(1000 - 128)
    assert header.segment_payload_length == 832
