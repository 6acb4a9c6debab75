"""Many payloads in one call: as each alone, from lists and from Arrow arrays."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import pyarrow as pa
import pytest

from shardwire import keccak256, keccak256_many
from shardwire.config import SegmentationConfig, SegmentWireFormat
from shardwire.errors import PayloadTooLargeError
from shardwire.segmentation import reassemble_many, segment, segment_many

WIRES = get_args(SegmentWireFormat)


def _config(wire_format: SegmentWireFormat = "raw") -> SegmentationConfig:
    return SegmentationConfig(
        segment_size_bytes=1_024, enable_reed_solomon=True, parity_rate=0.5, wire_format=wire_format
    )


def _payloads() -> list[bytes]:
    source = random.Random(3)
    return [source.randbytes(length) for length in (1, 1_000, 5_000, 40_000, 40_000, 90_001)]


@pytest.mark.parametrize("wire_format", WIRES)
def test_batches_are_made_and_put_together_as_each_alone(wire_format: SegmentWireFormat) -> None:
    config, payloads = _config(wire_format), _payloads()
    batches = segment_many(payloads, config)
    assert batches == [segment(payload, config) for payload in payloads]
    assert reassemble_many(batches, config) == payloads
    assert segment_many((bytearray(payload) for payload in payloads), config) == batches
    assert segment_many([], config) == [] == reassemble_many([], config)


@pytest.mark.parametrize("wire_format", WIRES)
def test_losses_repeats_and_wrong_segments_in_batches(wire_format: SegmentWireFormat) -> None:
    config, payloads = _config(wire_format), _payloads()[2:]
    source = random.Random(5)
    lost, wrong, short = [], [], []
    for batch in segment_many(payloads, config):
        spare = len(batch) // 3
        lost.append(source.sample(batch, len(batch) - spare) + batch[:1])
        bad = batch[1][:-600] + bytes(200) + batch[1][-400:]
        wrong.append(source.sample([*batch[:1], bad, *batch[2:]], len(batch)))
        short.append(batch[: len(batch) // 3])
    assert reassemble_many(lost, config) == payloads
    assert reassemble_many(wrong, config) == payloads
    assert reassemble_many(short, config) == [None] * len(payloads)
    # Under draft, what is no segment is a payload that travelled as it is.
    unread = b"\xff no segment"
    assert reassemble_many([[], [unread] * 2], config) == [None, unread if wire_format == "draft" else None]


def test_batches_with_the_other_code_and_mixed_batches() -> None:
    config, payloads = _config(), _payloads()[2:4]
    other = replace(config, erasure_code="vandermonde")
    first, second = (batch[2:] for batch in segment_many(payloads, other))
    assert reassemble_many([first, second], config) == payloads
    assert reassemble_many([first[:3] + second[:3]], config) == [None]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_arrow_arrays_in_and_out(kind: pa.DataType) -> None:
    config, payloads = _config(), [*_payloads(), None]
    lists = segment_many(pa.array(payloads, kind), config)
    assert lists.to_pylist() == [None if payload is None else segment(payload, config) for payload in payloads]
    assert reassemble_many(lists, config).to_pylist() == payloads
    assert reassemble_many(lists.slice(2, 3), config).to_pylist() == payloads[2:5]
    large = lists.cast(pa.large_list(kind))
    assert reassemble_many(large, config).to_pylist() == payloads


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_chunked_arrays_keep_their_chunks(kind: pa.DataType) -> None:
    config, payloads = _config(), _payloads()
    chunks = [[*payloads, None], [], [None, *payloads[:2]]]
    for given in (chunks, []):
        chunked = pa.chunked_array([pa.array(chunk, kind) for chunk in given], kind)
        lists = segment_many(chunked, config)
        joined = reassemble_many(lists, config)
        digests = keccak256_many(chunked)
        for result in (lists, joined, digests):
            assert [len(chunk) for chunk in result.chunks] == ([len(chunk) for chunk in given] or [0])
        assert joined.to_pylist() == chunked.to_pylist()
        expected = [None if payload is None else keccak256(payload) for payload in chunked.to_pylist()]
        assert digests.to_pylist() == expected
    with pytest.raises(TypeError, match="binary"):
        keccak256_many(pa.chunked_array([[1]]))


def test_what_is_refused_is_said_at_once() -> None:
    config = _config()
    for payloads in ([b"a", bytes(1 << 20)], pa.array([b"a", bytes(1 << 20)])):
        with pytest.raises(PayloadTooLargeError, match="1048576 bytes"):
            segment_many(payloads, config)
    with pytest.raises(TypeError, match="list array of binary"):
        reassemble_many(pa.array([b"a"]), config)
    with pytest.raises(TypeError, match="binary"):
        segment_many(pa.array([1]), config)
