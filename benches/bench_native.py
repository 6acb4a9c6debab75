"""The heavy calls through the wheel: what an application pays, boundary included. Run by `make bench`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from shardwire import erasure, keccak256
from shardwire.segmentation import PayloadReconstructed, Reassembler, SegmentationConfig, segment

PAYLOAD = random.Random(1).randbytes(8_000_000)
CONFIG = SegmentationConfig(enable_reed_solomon=True, parity_rate=0.5)


def test_keccak256(benchmark: Callable[..., Any]) -> None:
    benchmark(keccak256, PAYLOAD)


@pytest.mark.parametrize("erasure_code", ["leopard", "vandermonde"])
def test_encode(benchmark: Callable[..., Any], erasure_code: str) -> None:
    size = CONFIG.segment_size_bytes
    shards = [PAYLOAD[start : start + size] for start in range(0, 64 * size, size)]
    benchmark(erasure.encode, shards, 32, erasure_code=erasure_code)


def test_segment(benchmark: Callable[..., Any]) -> None:
    benchmark(segment, PAYLOAD, CONFIG)


@pytest.mark.parametrize("lost", [0, 16, 39])
def test_reassemble(benchmark: Callable[..., Any], lost: int) -> None:
    segments = segment(PAYLOAD, CONFIG)[lost:]

    def reassemble() -> bool:
        reassembler = Reassembler(CONFIG)
        return any(isinstance(reassembler.receive(one, now_ms=0, sender="a"), PayloadReconstructed) for one in segments)

    assert benchmark(reassemble)
