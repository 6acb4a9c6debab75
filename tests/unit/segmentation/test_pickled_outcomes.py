"""Outcomes of reassembly and headers go to another process, and are equal there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from shardwire.segmentation import Reassembler, ReassemblyLimits, SegmentationConfig, inspect, segment

CONFIG = SegmentationConfig(
    segment_size_bytes=1_024, enable_reed_solomon=True, parity_rate=0.5, limits=ReassemblyLimits(timeout_ms=1_000)
)


def outcomes() -> list[Any]:
    reassembler = Reassembler(CONFIG)
    parts = segment(bytes(range(256)) * 20, CONFIG)
    found: list[Any] = [reassembler.receive(part, now_ms=0, sender="bob") for part in parts[1:]]
    found.append(reassembler.receive(b"none", now_ms=0))
    found.append(reassembler.receive(segment(bytes(5_000), CONFIG)[0], now_ms=0, sender="bob"))
    found += reassembler.expire(now_ms=10_000)
    found += [inspect(part) for part in parts]
    return found


def test_each_outcome_is_the_same_after_pickle_and_copy() -> None:
    found = outcomes()
    kinds = {type(outcome).__name__ for outcome in found}
    assert kinds == {"SegmentStored", "PayloadReconstructed", "SegmentDiscarded", "SetDropped", "SegmentHeader"}
    for outcome in found:
        for other in (pickle.loads(pickle.dumps(outcome)), copy.deepcopy(outcome), copy.copy(outcome)):
            assert type(other) is type(outcome)
            assert other == outcome
            assert repr(other) == repr(outcome)


@pytest.mark.parametrize("taken", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_puts_them_together_has_one_owner(taken: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="a Reassembler has one owner, and cannot be copied or pickled"):
        taken(Reassembler(CONFIG))
