"""What a receiver says of each segment, what it holds and what it gives up (specification 002, Receiving)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shardwire._native import keccak256
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

PAYLOAD = bytes(range(256)) * 10 + b"end"


def _config(**changes: Any) -> SegmentationConfig:
    return SegmentationConfig(**{"segment_size_bytes": 256, "enable_reed_solomon": True, "parity_rate": 0.5, **changes})


def _numbered(number: int) -> bytes:
    return number.to_bytes(4, "big") * 100


def _reason(outcome: ReceiveOutcome) -> str:
    assert isinstance(outcome, SegmentDiscarded | SetDropped), outcome
    return outcome.reason


def test_outcomes_of_a_payload_on_its_way() -> None:
    segments = segment(PAYLOAD, _config())
    reassembler = Reassembler(_config())
    stored = reassembler.receive(segments[0], now_ms=0)
    assert stored == stored
    match stored:
        case SegmentStored(entire_message_hash, held, needed):
            assert (entire_message_hash, held, needed) == (keccak256(PAYLOAD), 1, 10)
        case _:
            pytest.fail(repr(stored))
    assert _reason(reassembler.receive(segments[0], now_ms=0)) == "Duplicate"
    outcomes = [reassembler.receive(data, now_ms=0) for data in segments[3:13]]
    found = outcomes[-1]
    assert isinstance(found, PayloadReconstructed)
    assert found.payload == PAYLOAD
    assert found.data_segments_recovered == (1, 2)
    assert (found.data_segment_count, found.parity_segment_count) == (11, 6)
    assert (found.erasure_code, found.bad_segments) == ("leopard", ())
    assert _reason(reassembler.receive(segments[1], now_ms=0)) == "AlreadyCompleted"
    stats = reassembler.stats()
    assert (stats["received"], stats["stored"], stats["reconstructed"], stats["recovered"]) == (13, 11, 1, 1)
    assert (stats["sets_held"], stats["bytes_held"], stats["completed_remembered"]) == (0, 0, 1)
    assert (stats["Duplicate"], stats["AlreadyCompleted"]) == (1, 1)


def test_the_same_payload_under_another_key_is_another_message() -> None:
    segments = segment(PAYLOAD, _config())
    reassembler = Reassembler(_config())
    for key in (None, b"", b"first", b"second"):
        outcomes = [reassembler.receive(data, now_ms=0, message_key=key) for data in segments]
        assert sum(isinstance(outcome, PayloadReconstructed) for outcome in outcomes) == 1
    assert reassembler.stats()["reconstructed"] == 4


@pytest.mark.parametrize(
    ("data", "reason"), [(b"\x0a\xff", "Undecodable"), (b"", "Invalid"), (b"\x0a\x20" + bytes(32), "Invalid")]
)
def test_invalid_bytes_are_discarded_and_logged(data: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    reassembler = Reassembler(_config())
    with caplog.at_level(logging.WARNING, logger="shardwire.segmentation"):
        assert _reason(reassembler.receive(data, now_ms=0, sender="mallory")) == reason
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "mallory" in record.getMessage()
    if data[2:]:
        assert "00000000" in record.getMessage()
    assert reassembler.stats()[reason] == 1


def test_a_hash_mismatch_is_logged_with_prefix_and_sender(caplog: pytest.LogCaptureFixture) -> None:
    config = _config(enable_reed_solomon=False)
    [data] = segment(b"genuine", config)
    reassembler = Reassembler(config)
    with caplog.at_level(logging.WARNING, logger="shardwire.segmentation"):
        outcome = reassembler.receive(data.replace(b"genuine", b"changed"), now_ms=0, sender="mallory")
    assert _reason(outcome) == "HashMismatch"
    message = caplog.records[0].getMessage()
    assert keccak256(b"genuine")[:4].hex() in message
    assert "mallory" in message
    assert "is invalid" in message
    assert "changed" not in message
    # The genuine segment is not shut out.
    assert isinstance(reassembler.receive(data, now_ms=0), PayloadReconstructed)


def test_a_mismatch_of_a_whole_set_awaits_a_genuine_segment(caplog: pytest.LogCaptureFixture) -> None:
    config = _config(enable_reed_solomon=False)
    segments = segment(PAYLOAD, config)
    bad = segments[0][:-1] + bytes([segments[0][-1] ^ 1])
    reassembler = Reassembler(config)
    with caplog.at_level(logging.WARNING, logger="shardwire.segmentation"):
        outcomes = [reassembler.receive(data, now_ms=0) for data in [bad, *segments[1:]]]
    last = outcomes[-1]
    assert isinstance(last, SegmentStored)
    assert (last.hash_mismatch, last.segments_needed) == (True, 1)
    assert len(caplog.records) == 1
    found = reassembler.receive(segments[0], now_ms=0)
    assert isinstance(found, PayloadReconstructed)
    assert found.bad_segments == ((0, None),)


def test_counts_that_disagree_are_discarded_and_do_not_win() -> None:
    segments = segment(PAYLOAD, _config())
    other = segment(PAYLOAD, _config(parity_rate=0.25))
    reassembler = Reassembler(_config())
    assert isinstance(reassembler.receive(segments[0], now_ms=0), SegmentStored)
    assert isinstance(reassembler.receive(segments[1], now_ms=0), SegmentStored)
    assert _reason(reassembler.receive(other[2], now_ms=0)) == "CountMismatch"
    outcomes = [reassembler.receive(data, now_ms=0) for data in segments[2:]]
    assert any(isinstance(outcome, PayloadReconstructed) for outcome in outcomes)


def test_padded_tails_of_other_senders_are_accepted() -> None:
    config = _config()
    segments = segment(PAYLOAD, config)
    last = segments[10]
    # The payload is field 4 of the raw wire: the same header around a whole shard.
    start = last.index(b"\x22\x03end")
    padded = last[:start] + b"\x22\x80\x02" + b"end" + bytes(253) + last[start + 5 :]
    reassembler = Reassembler(config)
    outcomes = [reassembler.receive(data, now_ms=0) for data in [*segments[:10], padded]]
    found = outcomes[-1]
    assert isinstance(found, PayloadReconstructed)
    assert found.payload == PAYLOAD


def test_a_set_expires_after_its_last_new_segment() -> None:
    config = _config(limits=ReassemblyLimits(timeout_ms=1_000))
    segments = segment(PAYLOAD, config)
    reassembler = Reassembler(config)
    assert reassembler.next_expiry_ms() is None
    reassembler.receive(segments[0], now_ms=0, sender="alice", message_key=b"key")
    reassembler.receive(segments[1], now_ms=500, sender="alice", message_key=b"key")
    reassembler.receive(segments[1], now_ms=900, sender="alice", message_key=b"key")
    assert reassembler.next_expiry_ms() == 1_500
    assert reassembler.expire(1_499) == []
    [dropped] = reassembler.expire(1_500)
    assert (dropped.reason, dropped.sender, dropped.message_key) == ("Expired", "alice", b"key")
    assert dropped.entire_message_hash == keccak256(PAYLOAD)
    assert reassembler.stats()["bytes_held"] == 0
    # What came too late begins a set anew.
    assert isinstance(reassembler.receive(segments[2], now_ms=1_600, message_key=b"key"), SegmentStored)


def _receive_sets(reassembler: Reassembler, config: SegmentationConfig, count: int, **who: Any) -> list[ReceiveOutcome]:
    return [reassembler.receive(segment(_numbered(n), config)[0], now_ms=n, **who) for n in range(count)]


@pytest.mark.parametrize(
    ("limits", "who"),
    [
        (ReassemblyLimits(sets_per_sender_max=3), {"sender": "a"}),
        (ReassemblyLimits(sets_max=3), {"sender": "a", "authenticated": True}),
        (ReassemblyLimits(sets_max=6, unauthenticated_share=0.5), {"sender": "a"}),
        (ReassemblyLimits(sets_max=3, unauthenticated_share=1.0), {}),
    ],
)
def test_sets_at_the_limit_and_one_past_it(limits: ReassemblyLimits, who: dict[str, Any]) -> None:
    config = _config(limits=limits)
    reassembler = Reassembler(config)
    _receive_sets(reassembler, config, 3, **who)
    assert reassembler.poll_dropped() == []
    _receive_sets(reassembler, config, 4, **who)
    # The least recently updated goes: the first of the three.
    [dropped] = reassembler.poll_dropped()
    assert (dropped.reason, dropped.entire_message_hash) == ("Evicted", keccak256(_numbered(0)))
    assert reassembler.stats()["sets_held"] == 3


@pytest.mark.parametrize(
    ("field", "share", "authenticated"),
    [
        ("buffered_bytes_per_sender_max", 1.0, False),
        ("buffered_bytes_max", 1.0, False),
        ("buffered_bytes_max", 0.5, True),
    ],
)
def test_bytes_at_the_limit_and_one_past_it(field: str, share: float, authenticated: bool) -> None:
    plain = _config()
    wire = [segment(_numbered(n), plain)[0] for n in range(3)]
    held = sum(map(len, wire))
    for limit, evicted in ((held, 0), (held - 1, 1)):
        limits: dict[str, Any] = {field: limit, "unauthenticated_share": share}
        reassembler = Reassembler(_config(limits=ReassemblyLimits(**limits)))
        for data in wire:
            reassembler.receive(data, now_ms=0, sender="a", authenticated=authenticated)
        assert len(reassembler.poll_dropped()) == evicted
        assert reassembler.stats()["bytes_held"] <= limit


def test_the_share_of_claimed_identities_bounds_their_bytes() -> None:
    plain = _config()
    wire = [segment(_numbered(n), plain)[0] for n in range(4)]
    limit = 2 * sum(map(len, wire[:2]))
    reassembler = Reassembler(_config(limits=ReassemblyLimits(buffered_bytes_max=limit)))
    for number, data in enumerate(wire):
        reassembler.receive(data, now_ms=0, sender=str(number))
    assert reassembler.stats()["sets_held"] == 2


def test_an_authenticated_sender_evicts_only_its_own() -> None:
    config = _config(limits=ReassemblyLimits(sets_max=4))
    reassembler = Reassembler(config)
    reassembler.receive(segment(PAYLOAD, config)[0], now_ms=0, sender="honest")
    _receive_sets(reassembler, config, 10, sender="flood", authenticated=True)
    dropped = reassembler.poll_dropped()
    assert {entry.sender for entry in dropped} == {"flood"}
    # One that holds nothing is refused: the claimed identities and the others are not its own.
    outcome = reassembler.receive(segment(b"x" * 999, config)[0], now_ms=0, sender="late", authenticated=True)
    assert _reason(outcome) == "QuotaExceeded"


def test_a_claimed_identity_does_not_touch_the_authenticated_one_of_that_name() -> None:
    config = _config(limits=ReassemblyLimits(sets_per_sender_max=1))
    reassembler = Reassembler(config)
    reassembler.receive(segment(PAYLOAD, config)[0], now_ms=0, sender="alice", authenticated=True)
    _receive_sets(reassembler, config, 5, sender="alice")
    assert all(dropped.entire_message_hash != keccak256(PAYLOAD) for dropped in reassembler.poll_dropped())


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_candidates_of_a_slot_are_bounded(limit: int) -> None:
    config = _config(limits=ReassemblyLimits(candidates_per_slot_max=limit))
    data = segment(PAYLOAD, config)[0]
    reassembler = Reassembler(config)
    start = data.index(PAYLOAD[:256])
    outcomes = []
    for number in range(limit + 1):
        rival = data[:start] + bytes([number]) * 256 + data[start + 256 :]
        outcomes.append(reassembler.receive(rival, now_ms=0))
    assert all(isinstance(outcome, SegmentStored) for outcome in outcomes[:-1])
    assert _reason(outcomes[-1]) == "QuotaExceeded"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_completions_are_remembered_up_to_the_limit(limit: int) -> None:
    config = _config(limits=ReassemblyLimits(completed_remembered_max=limit))
    reassembler = Reassembler(config)
    wire = [segment(number.to_bytes(2, "big"), config)[0] for number in range(limit + 1)]
    for data in wire:
        assert isinstance(reassembler.receive(data, now_ms=0), PayloadReconstructed)
    if limit:
        assert _reason(reassembler.receive(wire[-1], now_ms=0)) == "AlreadyCompleted"
    assert isinstance(reassembler.receive(wire[0], now_ms=0), PayloadReconstructed)


def test_a_segment_larger_than_the_budget_is_oversized() -> None:
    config = _config(limits=ReassemblyLimits(buffered_bytes_max=2_000))
    reassembler = Reassembler(config)
    assert _reason(reassembler.receive(segment(PAYLOAD, config)[0], now_ms=0)) == "Oversized"
    huge = segment(bytes(5_000), SegmentationConfig(segment_size_bytes=4_096))[0]
    assert _reason(reassembler.receive(huge, now_ms=0)) == "Oversized"


def test_a_restart_keeps_partial_sets_and_completions() -> None:
    config = _config()
    segments = segment(PAYLOAD, config)
    done = segment(b"done", config)[0]
    before = Reassembler(config)
    for data in [*segments[:6], done]:
        before.receive(data, now_ms=7, sender="alice", authenticated=True, message_key=b"key")
    records = before.poll_persist()
    assert before.poll_persist() == []
    assert [operation for operation, _, _ in records].count("put_segment") == 6
    after = Reassembler(config)
    after.restore([*records, *records, ("put_segment", b"short", b"junk"), ("put_completed", b"", b"")])
    # What is held already is ignored too.
    assert after.stats()["restore_ignored"] == 6 + 2
    assert after.next_expiry_ms() == 300_007
    keyed: dict[str, Any] = {"sender": "alice", "authenticated": True, "message_key": b"key"}
    assert _reason(after.receive(done, now_ms=8, **keyed)) == "AlreadyCompleted"
    outcomes = [after.receive(data, now_ms=8, **keyed) for data in segments[6:11]]
    assert isinstance(outcomes[-1], PayloadReconstructed)
    operations = [operation for operation, _, _ in after.poll_persist()]
    assert operations == ["delete_set", "put_completed"]
