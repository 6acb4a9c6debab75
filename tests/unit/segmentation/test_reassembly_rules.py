"""The receiver's rules of specifications 001 and 002, one by one."""

from __future__ import annotations

import itertools
import logging
import random
from dataclasses import replace

import pytest

from shardwire import erasure, keccak256
from shardwire.config import SegmentWireFormat
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    ReassemblyLimits,
    ReceiveOutcome,
    SegmentationConfig,
    SegmentDiscarded,
    SegmentStored,
    SetDropped,
    inspect,
    segment,
)
from tests.protobuf_fields import field, fields_of

SIZE = 192
RAW = SegmentationConfig(segment_size_bytes=SIZE, enable_reed_solomon=True, parity_rate=0.5)
DRAFT = replace(RAW, wire_format="draft")
WIRES: tuple[SegmentWireFormat, ...] = ("raw", "draft", "lip243")
PAYLOAD = random.Random(9).randbytes(4 * SIZE - 5)
MINUTE_MS = 60_000


def config_of(wire_format: SegmentWireFormat) -> SegmentationConfig:
    return replace(RAW, wire_format=wire_format, segment_size_bytes=SIZE + (128 if wire_format == "lip243" else 0))


def content_of(data: bytes) -> bytes:
    content = dict(fields_of(data))[4]
    assert isinstance(content, bytes)
    return content


def altered(data: bytes) -> bytes:
    """A valid segment whose content is another one."""
    content = content_of(data)
    return data.replace(content, bytes([content[0] ^ 1]) + content[1:])


def receive_all(reassembler: Reassembler, segments: list[bytes], **arguments: object) -> list[ReceiveOutcome]:
    return [reassembler.receive(one, now_ms=0, sender="alice", **arguments) for one in segments]  # type: ignore[arg-type]


def payloads(outcomes: list[ReceiveOutcome]) -> list[bytes]:
    return [outcome.payload for outcome in outcomes if isinstance(outcome, PayloadReconstructed)]


# --- what is on the wire ---


def test_fields_of_the_raw_wire() -> None:
    segments = [dict(fields_of(one)) for one in segment(PAYLOAD, RAW)]
    assert len(segments) == 6
    for index, one in enumerate(segments[:4]):
        assert one[1] == keccak256(PAYLOAD)
        assert (one.get(2, 0), one[3], one[6]) == (index, 4, 2)
        assert one[4] == PAYLOAD[index * SIZE : (index + 1) * SIZE]
        assert not one.keys() & {5, 7}
    for index, one in enumerate(segments[4:]):
        assert (one.get(5, 0), one[3], one[6], one[7]) == (index, 4, 2, 1)
        assert len(bytes(one[4])) == SIZE
        assert 2 not in one
    without = [dict(fields_of(one)) for one in segment(PAYLOAD, replace(RAW, enable_reed_solomon=False))]
    assert len(without) == 4
    assert not any(one.keys() & {5, 6, 7} for one in without)


def test_fields_of_the_draft_wire() -> None:
    segments = [dict(fields_of(one)) for one in segment(PAYLOAD, DRAFT)]
    assert len(segments) == 6
    for index, one in enumerate(segments[:4]):
        assert one[1] == keccak256(PAYLOAD)
        assert (one.get(2, 0), one[3]) == (index, 4)
        assert one.keys() <= {1, 2, 3, 4}
    for index, one in enumerate(segments[4:]):
        assert one[1] == keccak256(PAYLOAD)
        assert (one.get(5, 0), one[6]) == (index, 2)
        assert one.keys() <= {1, 4, 5, 6}


@pytest.mark.parametrize("code", ["leopard", "vandermonde"])
@pytest.mark.parametrize("wire_format", ["raw", "draft"])
def test_parity_is_that_of_zero_padded_chunks(wire_format: SegmentWireFormat, code: str) -> None:
    config = replace(config_of(wire_format), erasure_code=code)  # type: ignore[arg-type]
    chunks = [PAYLOAD[start : start + SIZE].ljust(SIZE, b"\0") for start in range(0, len(PAYLOAD), SIZE)]
    parity = erasure.encode(chunks, 2, erasure_code=code)  # type: ignore[arg-type]
    assert [dict(fields_of(one))[4] for one in segment(PAYLOAD, config)][4:] == parity


@pytest.mark.parametrize(("size", "count"), [(1, 1), (SIZE, 1), (SIZE + 1, 2), (2 * SIZE, 2), (2 * SIZE + 1, 3)])
def test_number_of_data_segments(size: int, count: int) -> None:
    segments = segment(PAYLOAD[:size], replace(RAW, enable_reed_solomon=False))
    assert len(segments) == count
    assert all(len(content_of(one)) <= SIZE for one in segments)


# --- complete sets ---


@pytest.mark.parametrize("wire_format", WIRES)
def test_any_k_of_the_segments_are_enough_and_fewer_are_not(wire_format: SegmentWireFormat) -> None:
    config = config_of(wire_format)
    segments = segment(PAYLOAD, config)
    for chosen in itertools.combinations(segments, 4):
        outcomes = receive_all(Reassembler(config), list(chosen))
        assert payloads(outcomes[:3]) == []
        assert payloads(outcomes) == [PAYLOAD]


@pytest.mark.parametrize("wire_format", WIRES)
def test_any_order_gives_the_same_payload_without_the_decoder(wire_format: SegmentWireFormat) -> None:
    config = config_of(wire_format)
    data = segment(PAYLOAD, config)[:4]
    for order in itertools.permutations(data):
        done = receive_all(Reassembler(config), list(order))[-1]
        assert isinstance(done, PayloadReconstructed)
        assert (done.payload, done.data_segments_recovered, done.erasure_code) == (PAYLOAD, (), None)


def test_draft_learns_the_number_of_data_segments_from_any_of_them() -> None:
    *data, first_parity, second_parity = segment(PAYLOAD, DRAFT)
    outcomes = receive_all(Reassembler(DRAFT), [second_parity, first_parity, data[3], data[1]])
    needed = [outcome.segments_needed for outcome in outcomes[:3] if isinstance(outcome, SegmentStored)]
    assert needed == [None, None, 1]
    assert payloads(outcomes) == [PAYLOAD]


def test_which_code_made_the_parity_is_found_out() -> None:
    made = segment(PAYLOAD, replace(RAW, erasure_code="vandermonde"))
    done = receive_all(Reassembler(RAW), made[2:])[-1]
    assert isinstance(done, PayloadReconstructed)
    assert (done.payload, done.erasure_code) == (PAYLOAD, "vandermonde")


def test_a_single_segment_is_delivered_at_once() -> None:
    outcomes = receive_all(Reassembler(RAW), segment(b"one", RAW))
    assert payloads(outcomes) == [b"one"]


def test_sets_of_different_payloads_do_not_mix() -> None:
    other = random.Random(10).randbytes(len(PAYLOAD))
    reassembler = Reassembler(RAW)
    mixed = [one for pair in zip(segment(PAYLOAD, RAW), segment(other, RAW), strict=True) for one in pair]
    assert sorted(payloads(receive_all(reassembler, mixed))) == sorted([PAYLOAD, other])


# --- what is refused ---

HASH = field(1, bytes(32))
INVALID_RAW = {
    "hash of 0 bytes": field(1, b"") + field(3, 1),
    "hash of 31 bytes": field(1, bytes(31)) + field(3, 1),
    "hash of 33 bytes": field(1, bytes(33)) + field(3, 1),
    "data count 0": HASH,
    "data count 0 on parity": HASH + field(6, 1) + field(7, 1),
    "data index at its count": HASH + field(2, 2) + field(3, 2),
    "parity count 0": HASH + field(3, 2) + field(7, 1),
    "parity index at its count": HASH + field(3, 2) + field(5, 1) + field(6, 1) + field(7, 1),
    "data with a parity index": HASH + field(3, 2) + field(5, 1) + field(6, 2),
    "parity with a data index": HASH + field(2, 1) + field(3, 2) + field(6, 1) + field(7, 1),
    "more than 256 in all": HASH + field(3, 200) + field(6, 57),
    "counts of 32 bits": HASH + field(3, 2**32 - 1) + field(6, 2**32 - 1),
}
INVALID_DRAFT = {
    "one data segment": HASH + field(3, 1) + field(4, b"x"),
    "data index at its count": HASH + field(2, 2) + field(3, 2) + field(4, b"x"),
    "parity count 0": HASH + field(5, 0) + field(4, b"x"),
    "parity index at its count": HASH + field(4, b"x") + field(5, 2) + field(6, 2),
    "data with parity fields": HASH + field(3, 2) + field(4, b"x") + field(5, 1) + field(6, 2),
    "parity with a data index": HASH + field(2, 1) + field(4, b"x") + field(6, 2),
}


@pytest.mark.parametrize("name", INVALID_RAW)
def test_raw_segments_that_are_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    check_refused(INVALID_RAW[name], RAW, caplog)


@pytest.mark.parametrize("name", INVALID_DRAFT)
def test_draft_segments_that_are_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    check_refused(INVALID_DRAFT[name], DRAFT, caplog)


def check_refused(data: bytes, config: SegmentationConfig, caplog: pytest.LogCaptureFixture) -> None:
    """Refused, logged with the sender, and neither kept nor counted against anyone."""
    reassembler = Reassembler(config)
    held = ("sets_held", "bytes_held", "senders_held", "stored")
    with caplog.at_level(logging.WARNING):
        outcome = reassembler.receive(data, now_ms=0, sender="mallory")
    assert isinstance(outcome, SegmentDiscarded)
    assert outcome.reason == "Invalid"
    assert "mallory" in caplog.text
    assert "invalid" in caplog.text
    assert reassembler.poll_persist() == []
    assert [reassembler.stats()[name] for name in held] == [0, 0, 0, 0]


def test_counts_that_disagree_with_the_set_are_refused() -> None:
    reassembler = Reassembler(RAW)
    reassembler.receive(segment(PAYLOAD, RAW)[0], now_ms=0)
    rival = field(1, keccak256(PAYLOAD)) + field(2, 1) + field(3, 5) + field(4, b"x") + field(6, 2)
    outcome = reassembler.receive(rival, now_ms=0)
    assert isinstance(outcome, SegmentDiscarded)
    assert outcome.reason == "CountMismatch"


def test_a_duplicate_changes_nothing() -> None:
    reassembler = Reassembler(RAW)
    first, second, *_ = segment(PAYLOAD, RAW)
    receive_all(reassembler, [first, second])
    reassembler.poll_persist()
    held = reassembler.stats()
    again = receive_all(reassembler, [first, first, second])
    assert [outcome.reason for outcome in again if isinstance(outcome, SegmentDiscarded)] == ["Duplicate"] * 3
    assert reassembler.poll_persist() == []
    changed = {name for name, value in reassembler.stats().items() if value != held[name]}
    assert changed == {"received", "Duplicate"}


def test_late_segments_of_a_complete_payload_are_ignored() -> None:
    reassembler = Reassembler(RAW)
    segments = segment(PAYLOAD, RAW)
    outcomes = receive_all(reassembler, segments + segments)
    assert payloads(outcomes) == [PAYLOAD]
    assert {outcome.reason for outcome in outcomes[4:] if isinstance(outcome, SegmentDiscarded)} == {"AlreadyCompleted"}
    assert not any(operation == "put_segment" for operation, _, _ in reassembler.poll_persist()[4:])


def test_the_same_payload_under_another_key_is_another_message() -> None:
    reassembler = Reassembler(RAW)
    segments = segment(PAYLOAD, RAW)
    first = receive_all(reassembler, segments, message_key=b"first send")
    second = receive_all(reassembler, segments, message_key=b"second send")
    assert payloads(first) == payloads(second) == [PAYLOAD]


def test_an_incomplete_set_expires_after_its_timeout_and_gives_its_bytes_back() -> None:
    config = replace(RAW, limits=ReassemblyLimits(timeout_ms=MINUTE_MS, buffered_bytes_per_sender_max=4_000))
    reassembler = Reassembler(config)
    segments = segment(PAYLOAD, config)
    reassembler.receive(segments[0], now_ms=0, sender="alice")
    reassembler.receive(segments[1], now_ms=30_000, sender="alice")
    assert reassembler.next_expiry_ms() == 30_000 + MINUTE_MS
    reassembler.poll_persist()
    assert reassembler.expire(30_000 + MINUTE_MS - 1) == []
    [dropped] = reassembler.expire(30_000 + MINUTE_MS)
    assert (dropped.entire_message_hash, dropped.reason) == (keccak256(PAYLOAD), "Expired")
    assert reassembler.next_expiry_ms() is None
    assert [reassembler.stats()[name] for name in ("sets_held", "bytes_held")] == [0, 0]
    assert [operation for operation, _, _ in reassembler.poll_persist()] == ["delete_set"]
    # It begins anew: what was held is gone.
    outcomes = [reassembler.receive(one, now_ms=2 * MINUTE_MS, sender="alice") for one in segments[2:5]]
    assert payloads(outcomes) == []


def test_a_sender_over_its_quota_costs_itself_and_nobody_else() -> None:
    limits = ReassemblyLimits(sets_max=1_000, sets_per_sender_max=3)
    config = replace(RAW, limits=limits)
    reassembler = Reassembler(config)
    honest = segment(PAYLOAD, config)
    for one in honest[:3]:
        reassembler.receive(one, now_ms=0, sender="alice", authenticated=True)
    for number in range(50):
        flood = segment(random.Random(number).randbytes(len(PAYLOAD)), config)[0]
        reassembler.receive(flood, now_ms=1, sender="mallory", authenticated=True)
    dropped = reassembler.poll_dropped()
    assert {one.sender for one in dropped} <= {"mallory"}
    assert reassembler.receive(honest[4], now_ms=2, sender="alice", authenticated=True)
    assert reassembler.stats()["sets_held"] <= 1 + 3


def test_bytes_held_are_bounded_over_all_senders() -> None:
    limits = ReassemblyLimits(buffered_bytes_max=20_000, buffered_bytes_per_sender_max=5_000)
    config = replace(RAW, limits=limits)
    reassembler = Reassembler(config)
    for number in range(500):
        flood = segment(random.Random(number).randbytes(len(PAYLOAD)), config)[0]
        reassembler.receive(flood, now_ms=number, sender=f"sender {number % 50}")
        assert reassembler.stats()["bytes_held"] <= 20_000


# --- what is wrong with the content ---


def test_a_payload_without_its_hash_is_never_delivered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    for config in (RAW, DRAFT):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            outcomes = receive_all(Reassembler(config), [altered(one) for one in segment(PAYLOAD, config)])
        assert payloads(outcomes) == []
        assert keccak256(PAYLOAD)[:4].hex() in caplog.text
        assert "alice" in caplog.text
    forged = b"".join((field(1, keccak256(PAYLOAD)), field(3, 1), field(4, b"something else")))
    assert not payloads(receive_all(Reassembler(RAW), [forged]))


def test_forged_segments_never_make_another_payload() -> None:
    segments = segment(PAYLOAD, RAW)
    forged = [altered(segments[0]), altered(segments[4])]
    for order in itertools.permutations([*forged, *segments[1:5]]):
        assert set(payloads(receive_all(Reassembler(RAW), list(order)))) <= {PAYLOAD}
    # Until the forged ones came, nothing was wrong.
    assert payloads(receive_all(Reassembler(RAW), [*segments[:4], *forged])) == [PAYLOAD]


def test_limits_of_the_sender_hold_for_the_receiver_too() -> None:
    config = replace(RAW, max_total_segments=5)
    outcome = Reassembler(config).receive(segment(PAYLOAD, RAW)[0], now_ms=0)
    assert isinstance(outcome, SegmentDiscarded)
    assert outcome.reason == "Invalid"


def test_segments_and_sets_too_large_to_hold_are_refused() -> None:
    reassembler = Reassembler(replace(RAW, limits=ReassemblyLimits(buffered_bytes_per_sender_max=1_000)))
    large = segment(random.Random(1).randbytes(20_000), replace(RAW, segment_size_bytes=10_240))
    outcomes = receive_all(reassembler, large)
    reasons = {outcome.reason for outcome in outcomes if isinstance(outcome, SegmentDiscarded)}
    assert len(outcomes) == len([outcome for outcome in outcomes if isinstance(outcome, SegmentDiscarded)])
    assert reasons <= {"Oversized", "QuotaExceeded"}
    assert reassembler.stats()["bytes_held"] == 0


def test_a_set_that_cannot_become_right_is_dropped_or_waits_within_its_budget() -> None:
    segments = [altered(one) for one in segment(PAYLOAD, RAW)]
    outcomes = receive_all(Reassembler(replace(RAW, limits=ReassemblyLimits(work_budget=1))), segments)
    assert any(isinstance(outcome, SetDropped) or getattr(outcome, "hash_mismatch", False) for outcome in outcomes)


# --- across a restart ---


def test_a_half_complete_set_and_completions_come_back_from_what_was_saved() -> None:
    reassembler = Reassembler(RAW)
    finished = random.Random(11).randbytes(700)
    receive_all(reassembler, segment(finished, RAW))
    segments = segment(PAYLOAD, RAW)
    receive_all(reassembler, segments[:2])
    saved: dict[bytes, tuple[str, bytes, bytes]] = {}
    for operation, key, value in reassembler.poll_persist():
        if operation.startswith("put_"):
            saved[key] = (operation, key, value)
        elif operation == "delete_set":
            saved = {name: entry for name, entry in saved.items() if not name.startswith(key)}
        else:
            saved.pop(key, None)
    restarted = Reassembler(RAW)
    restarted.restore(saved.values())
    assert payloads(receive_all(restarted, segment(finished, RAW))) == []
    assert payloads(receive_all(restarted, segments[4:])) == [PAYLOAD]


def test_inspect_reads_what_receive_takes() -> None:
    for wire_format in WIRES:
        config = config_of(wire_format)
        for one in segment(PAYLOAD, config):
            header = inspect(one, wire_format=wire_format)
            assert header is not None
            assert header.entire_message_hash == keccak256(PAYLOAD)
