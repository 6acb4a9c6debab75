"""What is sent: counts, limits, overhead and the rules of each wire (specifications 001, 002, LIP-243)."""

from __future__ import annotations

import pytest

from shardwire._native import keccak256
from shardwire.config import SegmentWireFormat
from shardwire.errors import ConfigError, InvalidSegmentError, PayloadTooLargeError
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    SegmentationConfig,
    SegmentHeader,
    inspect,
    segment,
    segment_many,
)

WIRES: tuple[SegmentWireFormat, ...] = ("raw", "draft", "lip243")


def _headers(payload: bytes, config: SegmentationConfig) -> list[SegmentHeader]:
    headers = [inspect(data, wire_format=config.wire_format) for data in segment(payload, config)]
    return [header for header in headers if header is not None]


def _config(wire_format: SegmentWireFormat = "raw", **changes: object) -> SegmentationConfig:
    size = 1_024 + (128 if wire_format == "lip243" else 0)
    settings: dict[str, object] = {"segment_size_bytes": size, "enable_reed_solomon": True, "parity_rate": 0.5}
    return SegmentationConfig(wire_format=wire_format, **{**settings, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("wire_format", WIRES)
def test_every_segment_says_where_it_belongs(wire_format: SegmentWireFormat) -> None:
    payload = bytes(range(256)) * 17
    headers = _headers(payload, _config(wire_format))
    data = [header for header in headers if not header.is_parity]
    parity = [header for header in headers if header.is_parity]
    assert (len(data), len(parity)) == (5, 2 if wire_format == "draft" else 3)
    assert {header.entire_message_hash for header in headers} == {keccak256(payload)}
    assert [header.data_segment_index for header in data] == [0, 1, 2, 3, 4]
    assert [header.parity_segment_index for header in parity] == list(range(len(parity)))
    assert b"".join(header.segment_payload for header in data) == payload
    # The last data segment travels at its true length, parity at that of a full one.
    assert [header.segment_payload_length for header in data] == [1_024] * 4 + [256]
    assert {header.segment_payload_length for header in parity} == {1_024}
    counted = data if wire_format == "draft" else headers
    assert {header.data_segment_count for header in counted} == {5}
    assert {header.payload_length for header in headers} == {len(payload) if wire_format == "lip243" else None}


@pytest.mark.parametrize("wire_format", WIRES)
def test_overhead_is_at_most_100_bytes_a_segment(wire_format: SegmentWireFormat) -> None:
    config = _config(wire_format, parity_rate=0.125)
    for length in (0, 1, 1_024, 1_025, 100_000, 224 * 1_024):
        if length == 0 and wire_format == "draft":
            continue
        for data in segment(bytes(length), config):
            header = inspect(data, wire_format=wire_format)
            held = len(data) if header is None else header.segment_payload_length
            assert len(data) - held <= 100


def test_parity_is_counted_in_integers() -> None:
    # ceil(0.07 * 100) is 7 in integers and 8 in binary floating point.
    payload = bytes(100 * 1_024)
    assert len(segment(payload, _config(parity_rate=0.07))) == 107
    assert len(segment(payload, _config("draft", parity_rate=0.079))) == 107
    assert len(segment(payload, _config("draft", parity_rate=0.07))) == 107
    assert len(segment(bytes(8 * 1_024), _config(parity_rate=1.0))) == 16
    assert len(segment(bytes(8 * 1_024), _config("lip243", parity_rate=1.0))) == 15


def test_a_single_segment_gets_parity_only_when_asked() -> None:
    assert len(segment(b"one", _config())) == 1
    [data, parity] = segment(b"one", _config(parity_for_single_segment=True))
    reassembler = Reassembler(_config())
    outcome = reassembler.receive(parity, now_ms=0)
    assert isinstance(outcome, PayloadReconstructed)
    assert outcome.payload == b"one"
    assert outcome.data_segments_recovered == (0,)
    assert len(data) < len(parity)


@pytest.mark.parametrize("wire_format", WIRES)
@pytest.mark.parametrize("code", ["leopard", "vandermonde"])
def test_the_largest_payload_and_one_byte_more(wire_format: SegmentWireFormat, code: str) -> None:
    config = _config(wire_format, parity_rate=0.125, erasure_code=code, segment_size_bytes=192)
    chunk = 64 if wire_format == "lip243" else 192
    draft = wire_format == "draft"
    most = {("leopard", False): 224, ("leopard", True): 224, ("vandermonde", False): 226, ("vandermonde", True): 227}
    limit = most[code, draft] * chunk
    assert len(segment(bytes(limit), config)) < 256
    with pytest.raises(PayloadTooLargeError, match=f"{limit + 1} bytes: at most {limit}"):
        segment(bytes(limit + 1), config)


def test_draft_sends_small_payloads_unmodified() -> None:
    config = _config("draft")
    payload = bytes(range(256)) * 4
    [sent] = segment(payload, config)
    assert sent is payload
    assert inspect(sent, wire_format="draft") is None
    assert len(segment(payload + b"x", config)) == 3
    outcome = Reassembler(config).receive(sent, now_ms=0)
    assert isinstance(outcome, PayloadReconstructed)
    assert (outcome.payload, outcome.entire_message_hash) == (payload, keccak256(payload))


def test_draft_refuses_a_small_payload_that_reads_as_a_segment() -> None:
    config = _config("draft")
    last = segment(bytes(2_000), config)[1]
    with pytest.raises(ConfigError, match="reads as a segment"):
        segment(last, config)
    with pytest.raises(ConfigError, match="empty"):
        segment(b"", config)


@pytest.mark.parametrize("wire_format", ["raw", "lip243"])
def test_an_empty_payload_is_one_segment(wire_format: SegmentWireFormat) -> None:
    config = _config(wire_format)
    [data] = segment(b"", config)
    outcome = Reassembler(config).receive(data, now_ms=0)
    assert isinstance(outcome, PayloadReconstructed)
    assert outcome.payload == b""


def test_many_payloads_are_segmented_as_each_alone() -> None:
    config = _config()
    payloads = [b"", b"a", bytes(1_024), bytes(range(256)) * 30]
    assert segment_many(payloads, config) == [segment(payload, config) for payload in payloads]
    assert segment_many([], config) == []
    with pytest.raises(PayloadTooLargeError):
        segment_many([b"a", bytes(300 * 1_024)], config)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "32"),
        (b"\x0a", "ends inside"),
        (b"\x0a\x20" + bytes(31), "ends inside"),
        (b"\x0a\x1f" + bytes(31), "has 31 bytes"),
        (b"\x0a\x21" + bytes(33), "has 33 bytes"),
        (b"\x0a\x20" + bytes(32), "data segment count is 0"),
        (b"\x0a\x20" + bytes(32) + b"\x18\x01\x10\x01", "index 1 is not below its count, 1"),
        (b"\x0a\x20" + bytes(32) + b"\x18\x81\x02", "257 data"),
        (b"\x0a\x20" + bytes(32) + b"\x18\xff\xff\xff\xff\x0f\x30\xff\xff\xff\xff\x0f", "4294967295 data"),
        (b"\x0a\x20" + bytes(32) + b"\x18\x02\x28\x01", "parity_segment_index = 1"),
        (b"\x0a\x20" + bytes(32) + b"\x18\x02\x30\x02\x38\x01\x10\x01", "data_segment_index = 1"),
        (b"\x0a\x20" + bytes(32) + b"\x18\x02\x38\x01", "parity segment index 0"),
        (b"\x0a\x20" + bytes(32) + b"\x18" + b"\xff" * 10, "64 bits"),
    ],
)
def test_hostile_bytes_are_invalid_and_nothing_else(data: bytes, message: str) -> None:
    with pytest.raises(InvalidSegmentError, match=message):
        inspect(data)


def test_counts_up_to_the_limit_are_accepted_and_fewer_are_sent() -> None:
    config = _config(enable_reed_solomon=False)
    assert len(segment(bytes(255 * 1_024), config)) == 255
    with pytest.raises(PayloadTooLargeError, match=f"at most {255 * 1_024}"):
        segment(bytes(255 * 1_024 + 1), config)
    header = inspect(b"\x0a\x20" + bytes(32) + b"\x18\x80\x02")
    assert header is not None
    assert header.data_segment_count == 256
    with pytest.raises(InvalidSegmentError, match="at most 255"):
        inspect(b"\x0a\x20" + bytes(32) + b"\x18\x80\x02", max_total_segments=255)
