"""Whom a hostile sender displaces where there is no more room: itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shardwire._native import keccak256
from shardwire.segmentation import PayloadReconstructed, Reassembler, SegmentationConfig, segment

CONFIG = SegmentationConfig(segment_size_bytes=64, enable_reed_solomon=True)
PAYLOAD = random.Random(1).randbytes(64 * 20)


def empty_segment(number: int, index: int, data_segments: int = 20) -> bytes:
    """A raw segment of a payload that nobody has: hash, index, count, and no bytes."""
    digest = keccak256(number.to_bytes(4, "big"))
    return b"\x0a\x20" + digest + (b"\x10" + bytes([index]) if index else b"") + b"\x18" + bytes([data_segments])


def fill_up(reassembler: Reassembler, flood: str, *, authenticated: bool) -> None:
    """Begins more sets than the limits admit, all in one name or each in its own."""
    for number in range(700 if flood == "names" else 110):
        name = f"name {number}" if flood == "names" else "mallory"
        reassembler.receive(empty_segment(number, 0), now_ms=1, sender=name, authenticated=authenticated)


@pytest.mark.parametrize("held", [1, 2, 6, 19])
@pytest.mark.parametrize("first", ["replayed", "forged"])
@pytest.mark.parametrize(("flood", "proven"), [("mallory", False), ("mallory", True), ("names", False)])
def test_who_sends_the_first_segment_does_not_own_the_others(flood: str, proven: bool, first: str, held: int) -> None:
    wire = segment(PAYLOAD, CONFIG)
    reassembler = Reassembler(CONFIG)
    forged = wire[20][:-1] + bytes([wire[20][-1] ^ 1])
    reassembler.receive(wire[0] if first == "replayed" else forged, now_ms=0, sender="mallory", authenticated=proven)
    for data in wire[:held]:
        reassembler.receive(data, now_ms=0, sender="alice", authenticated=True)
    fill_up(reassembler, flood, authenticated=proven)
    evicted = reassembler.poll_dropped()
    assert evicted
    assert keccak256(PAYLOAD) not in {dropped.entire_message_hash for dropped in evicted}
    outcomes = [reassembler.receive(data, now_ms=2, sender="alice", authenticated=True) for data in wire[held:20]]
    assert isinstance(outcomes[-1], PayloadReconstructed)
    reassembler.expire(10**9)
    assert [reassembler.stats()[name] for name in ("sets_held", "bytes_held", "senders_held")] == [0, 0, 0]


def test_what_was_replayed_before_its_sender_came_goes_on_as_the_senders() -> None:
    wire = segment(PAYLOAD, CONFIG)
    reassembler = Reassembler(CONFIG)
    for sender in ("mallory", "alice"):
        for data in wire[:10]:
            reassembler.receive(data, now_ms=0, sender=sender, authenticated=True)
    stored = {key: (operation, key, value) for operation, key, value in reassembler.poll_persist()}
    fill_up(reassembler, "mallory", authenticated=True)
    for operation, key, value in reassembler.poll_persist():
        if operation == "delete_set":
            stored = {name: row for name, row in stored.items() if not name.startswith(key)}
        else:
            stored[key] = (operation, key, value)
    restarted = Reassembler(CONFIG)
    restarted.restore(stored.values())
    for receiver in (reassembler, restarted):
        keyed = {"sender": "alice", "authenticated": True}
        outcomes = [receiver.receive(data, now_ms=2, **keyed) for data in wire[10:20]]  # type: ignore[arg-type]
        assert isinstance(outcomes[-1], PayloadReconstructed)


def test_claimed_names_that_fill_every_slot_do_not_shut_a_proven_sender_out() -> None:
    payload = PAYLOAD[: 64 * 8]
    wire = segment(payload, CONFIG)
    reassembler = Reassembler(CONFIG)
    for number in range(CONFIG.limits.candidates_per_slot_max):
        for data in wire:
            forged = data.replace(data[60:90], random.Random(repr((number, data))).randbytes(30))
            reassembler.receive(forged, now_ms=0, sender=f"name {number}")
    outcomes = [reassembler.receive(data, now_ms=1, sender="alice", authenticated=True) for data in wire]
    assert [outcome.payload for outcome in outcomes if isinstance(outcome, PayloadReconstructed)] == [payload]


@pytest.mark.parametrize("forged_segments", [2, 10])
def test_a_flood_of_ids_with_empty_segments_leaves_a_sender_with_as_many_alone(forged_segments: int) -> None:
    wire = segment(PAYLOAD, CONFIG)
    reassembler = Reassembler(CONFIG)
    for data in wire[:forged_segments]:
        reassembler.receive(data, now_ms=0, sender="honest")
    for number in range(2_000):
        for index in range(forged_segments):
            reassembler.receive(empty_segment(number, index), now_ms=1, sender=f"forged {number}")
    outcomes = [reassembler.receive(data, now_ms=2, sender="honest") for data in wire[forged_segments:20]]
    assert isinstance(outcomes[-1], PayloadReconstructed)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("proven", [False, True], ids=["claimed", "proven"])
def test_a_sender_completes_its_payload_with_what_another_one_sent_before(proven: bool, restarts: bool) -> None:
    config = replace(CONFIG, parity_rate=0.5)
    wire = segment(PAYLOAD, config)
    reassembler = Reassembler(config)
    outcomes = []
    for number, data in enumerate(wire):
        forged = data.replace(data[60:90], random.Random(number).randbytes(30))
        claim = data if number >= 18 else forged
        outcomes.append(reassembler.receive(claim, now_ms=0, sender="mallory"))
    for number, data in enumerate(wire):
        if restarts and number == 15:
            stopped, reassembler = reassembler, Reassembler(config)
            reassembler.restore(stopped.poll_persist())
        outcomes.append(reassembler.receive(data, now_ms=1, sender="alice", authenticated=proven))
    assert [outcome.payload for outcome in outcomes if isinstance(outcome, PayloadReconstructed)] == [PAYLOAD]
