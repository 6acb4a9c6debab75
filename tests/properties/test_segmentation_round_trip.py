"""Any payload, any loss up to the parity, any order, duplicates: the payload comes out once, on every wire and code."""

from __future__ import annotations

import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from shardwire._native import SdsMessage, WakuMessage, keccak256
from shardwire.config import ErasureCode, SegmentWireFormat
from shardwire.errors import InvalidSegmentError
from shardwire.segmentation import PayloadReconstructed, Reassembler, SegmentationConfig, inspect, segment

WIRES = st.sampled_from(["raw", "draft", "lip243"])
CODES = st.sampled_from(["leopard", "vandermonde"])


def _config(wire_format: SegmentWireFormat, code: ErasureCode, rate: float) -> SegmentationConfig:
    size = 64 + (128 if wire_format == "lip243" else 0)
    return SegmentationConfig(
        segment_size_bytes=size,
        enable_reed_solomon=True,
        parity_rate=rate,
        erasure_code=code,
        wire_format=wire_format,
    )


@settings(max_examples=300, deadline=None)
@given(
    wire_format=WIRES,
    code=CODES,
    configured=CODES,
    body=st.binary(min_size=1, max_size=2_000),
    zeros=st.integers(0, 150),
    rate=st.sampled_from([0.125, 0.5, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_round_trip(
    wire_format: SegmentWireFormat,
    code: ErasureCode,
    configured: ErasureCode,
    body: bytes,
    zeros: int,
    rate: float,
    seed: int,
) -> None:
    payload = body + bytes(zeros)
    rng = random.Random(seed)
    segments = segment(payload, _config(wire_format, code, rate))
    headers = [inspect(data, wire_format=wire_format) for data in segments]
    data_count = sum(header is None or not header.is_parity for header in headers)
    lost = rng.randint(0, len(segments) - data_count)
    kept = rng.sample(range(len(segments)), len(segments) - lost)
    if wire_format == "draft" and all(ordinal >= data_count for ordinal in kept):
        # Parity does not say how many data segments there are on this wire.
        kept[0] = 0
    arrivals = kept + [rng.choice(kept) for _ in range(3)]
    rng.shuffle(arrivals)
    reassembler = Reassembler(_config(wire_format, configured, rate))
    outcomes = [reassembler.receive(segments[ordinal], now_ms=0, sender="s") for ordinal in arrivals]
    found = [outcome for outcome in outcomes if isinstance(outcome, PayloadReconstructed)]
    assert [outcome.payload for outcome in found] == [payload]
    assert found[0].bad_segments == ()
    assert reassembler.stats()["bytes_held"] == 0


@settings(max_examples=300, deadline=None)
@given(
    wire_format=WIRES,
    payload=st.binary(min_size=1, max_size=500),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 100),
)
def test_mutated_segments_raise_nothing_but_invalid(
    wire_format: SegmentWireFormat, payload: bytes, flips: list[tuple[int, int]], cut: int
) -> None:
    config = _config(wire_format, "leopard", 0.5)
    reassembler = Reassembler(config)
    for data in segment(payload, config):
        mutated = bytearray(data)
        for position, value in flips:
            mutated[position % len(mutated)] = value
        del mutated[len(mutated) - cut % len(mutated) :]
        with contextlib.suppress(InvalidSegmentError):
            inspect(mutated, wire_format=wire_format)
        outcome = reassembler.receive(mutated, now_ms=0)
        if isinstance(outcome, PayloadReconstructed):
            # Whatever came, what is given out has the hash it is given out under.
            assert keccak256(outcome.payload) == outcome.entire_message_hash


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bytes_raise_nothing(data: bytes) -> None:
    for wire_format in ("raw", "draft", "lip243"):
        reassembler = Reassembler(_config(wire_format, "leopard", 0.5))  # type: ignore[arg-type]
        reassembler.receive(data, now_ms=0)
    for sds_wire in ("spec", "nim"):
        message = SdsMessage.decode(data, sds_wire)  # type: ignore[arg-type]
        if message is not None and sds_wire == "spec":
            assert SdsMessage.decode(message.encode("spec"), "spec") == message
    WakuMessage.decode(data)
