"""Valid segments with one thing changed at a time, field by field, against what a receiver promises whatever comes.

The larger part of this search, 200,000 scenarios against a model, is in Rust (`fuzz/tests/mutations.rs`); here the same
is asked of the Python boundary, with hypothesis to shrink what it finds.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwire import keccak256
from shardwire.config import ErasureCode, SegmentWireFormat
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    ReassemblyLimits,
    ReceiveOutcome,
    SegmentationConfig,
    SegmentDiscarded,
    SegmentStored,
    SetDropped,
    segment,
)
from tests.protobuf_fields import field, fields_of

EXAMPLES = 250
# Those that often reach a slot come first and more than once: hypothesis leans towards what stands first, and most of
# what is searched lies behind the checks of a header.
KINDS = (*("genuine",) * 4, *("random",) * 4, *("flip",) * 2, "length", "index", "counts", "hash", "bytes", "cut")
Change = tuple[int, str, int]
LIMITS = ReassemblyLimits(
    sets_max=12, buffered_bytes_max=100_000, candidates_per_slot_max=3, completed_remembered_max=8
)

HASH, INDEX, COUNT, CONTENT, PARITY_INDEX, PARITY_COUNT = 1, 2, 3, 4, 5, 6


def mutated(data: bytes, kind: str, argument: int) -> bytes:
    """The segment with one thing changed."""
    rng = random.Random(argument)
    if kind == "bytes":
        changed = bytearray(data)
        changed[argument % len(data)] ^= 1 + argument % 255
        return bytes(changed)
    if kind == "cut":
        return data[: argument % len(data)]
    result = []
    for number, value in fields_of(data):
        if isinstance(value, bytes) and number == CONTENT and value:
            if kind == "random":
                value = rng.randbytes(len(value))
            elif kind == "flip":
                place = argument % len(value)
                value = value[:place] + bytes([value[place] ^ 1 + argument % 255]) + value[place + 1 :]
            elif kind == "length":
                value = value[: argument % len(value)] if argument % 2 else value + bytes(argument % 70)
        elif kind == "hash" and number == HASH and isinstance(value, bytes):
            value = rng.randbytes(len(value))
        elif kind == "index" and number in (INDEX, PARITY_INDEX):
            value = argument % 20
        elif kind == "counts" and number in (COUNT, PARITY_COUNT):
            value = argument % 300
        result.append(field(number, value))
    return b"".join(result)


class Receiver:
    """A reassembler, and what must hold of it after each segment and each restart."""

    def __init__(self, config: SegmentationConfig, counts: Counter[str]) -> None:
        self.config = config
        self.reassembler = Reassembler(config)
        self.counts = counts
        self.stored: dict[bytes, tuple[str, bytes, bytes]] = {}

    def receive(self, data: bytes, sender: str) -> ReceiveOutcome:
        before = self.reassembler.stats()
        outcome = self.reassembler.receive(data, now_ms=0, sender=sender)
        after = self.reassembler.stats()
        self.counts["cases"] += 1
        # That every outcome is counted, once.
        match outcome:
            case SegmentStored():
                name = "stored"
                assert after["bytes_held"] > 0
            case PayloadReconstructed():
                name = "reconstructed"
                assert keccak256(outcome.payload) == outcome.entire_message_hash
            case SegmentDiscarded() | SetDropped():
                name = outcome.reason
        assert after[name] == before[name] + 1
        assert after["sets_held"] <= LIMITS.sets_max
        assert after["bytes_held"] <= LIMITS.buffered_bytes_max
        assert (after["sets_held"] == 0) == (after["bytes_held"] == 0)
        at_a_slot = isinstance(outcome, SegmentStored | PayloadReconstructed) or name in ("Duplicate", "HashMismatch")
        mismatch = after["failed_reconstructions"] > before["failed_reconstructions"]
        self.counts["slot"] += at_a_slot
        self.counts["decode"] += mismatch or getattr(outcome, "erasure_code", None) is not None
        return outcome

    def restart(self) -> None:
        for operation, key, value in self.reassembler.poll_persist():
            if operation.startswith("put_"):
                self.stored[key] = (operation, key, value)
            elif operation == "delete_set":
                self.stored = {name: row for name, row in self.stored.items() if not name.startswith(key)}
            else:
                del self.stored[key]
        held = ("sets_held", "bytes_held", "senders_held", "completed_remembered")
        before = self.reassembler.stats()
        self.reassembler = Reassembler(self.config)
        self.reassembler.restore(self.stored.values())
        after = self.reassembler.stats()
        assert [after[name] for name in held] == [before[name] for name in held]
        assert after["restore_ignored"] == 0


def play(
    wire_format: SegmentWireFormat,
    code: ErasureCode,
    seed: int,
    sizes: list[int],
    changes: list[Change],
    counts: Counter[str],
) -> None:
    size = 64 + (128 if wire_format == "lip243" else 0)
    config = SegmentationConfig(
        segment_size_bytes=size, enable_reed_solomon=True, parity_rate=0.5, wire_format=wire_format, limits=LIMITS
    )
    sending = SegmentationConfig(
        segment_size_bytes=size, enable_reed_solomon=True, parity_rate=0.5, wire_format=wire_format, erasure_code=code
    )
    rng = random.Random(seed)
    payloads = {keccak256(payload): payload for payload in (rng.randbytes(size) for size in sizes)}
    sent = [data for payload in payloads.values() for data in segment(payload, sending)]
    receiver = Receiver(config, counts)
    delivered: Counter[bytes] = Counter()
    for number, (place, kind, argument) in enumerate(changes):
        data = sent[place % len(sent)]
        changed = data if kind == "genuine" else mutated(data, kind, argument)
        outcome = receiver.receive(changed, "alice" if kind == "genuine" else f"mallory {argument % 3}")
        if isinstance(outcome, PayloadReconstructed):
            delivered[outcome.entire_message_hash] += 1
        if argument % 50 == 0 and number:
            receiver.restart()
    # At most so many completions as are remembered: none came twice.
    if len(delivered) <= LIMITS.completed_remembered_max:
        assert set(delivered.values()) <= {1}
    # All genuine segments once more: whatever was held before, each payload is complete or was.
    for data in sent:
        receiver.receive(data, "alice")


def test_mutated_segments_break_no_promise(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(
        wire_format=st.sampled_from(["raw", "draft", "lip243"]),
        code=st.sampled_from(["leopard", "vandermonde"]),
        seed=st.integers(0, 2**32),
        sizes=st.lists(st.integers(65, 1000), min_size=2, max_size=4, unique=True),
        changes=st.lists(
            st.tuples(st.integers(0, 60), st.sampled_from(KINDS), st.integers(0, 2**16)), min_size=20, max_size=80
        ),
    )
    def search(
        wire_format: SegmentWireFormat, code: ErasureCode, seed: int, sizes: list[int], changes: list[Change]
    ) -> None:
        play(wire_format, code, seed, sizes, changes, counts)

    search()
    with capsys.disabled():
        print(f"\n{counts['cases']} segments: {counts['slot']} reached a slot, {counts['decode']} a decode")
    assert counts["cases"] >= 20 * EXAMPLES
    assert 2 * counts["slot"] >= counts["cases"]
    assert 20 * counts["decode"] >= counts["cases"]


def test_rivals_keep_their_records_over_two_restarts() -> None:
    changes = [(0, "genuine", 0)] * 15
    changes += [(6, "random", 146), (51, "genuine", 0), (51, "random", 284), (0, "genuine", 0), (21, "random", 0)]
    play("raw", "leopard", 0, [65, 449], changes, Counter())
