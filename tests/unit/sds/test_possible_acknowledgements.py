"""What filters say of contents of ours, and when that is no accident (004, `possible_acks_threshold`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, quiet_sync

from shardwire._native import BloomFilter, SdsMessage
from shardwire.sds import ContentAcknowledged, ContentPossiblyAcknowledged, SendAcknowledged, TransmitKind

# Filters that err often.
SDS = replace(LOGOS.sds, bloom_filter_capacity=8, bloom_filter_error_rate=0.3, possible_acks_threshold=2)


def filter_of(*message_ids: str) -> BloomFilter:
    bloom = BloomFilter(SDS.bloom_filter_capacity, SDS.bloom_filter_error_rate)
    bloom.insert_many(message_ids)
    return bloom


def message(sender: str, number: int, bloom: BloomFilter | None = None) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=f"{number:032x}.0",
        channel_id="room",
        lamport_timestamp=1_760_000_000_000 + number,
        bloom_filter=None if bloom is None else bloom.to_bytes(),
        content=b"0/1/1|text",
    ).encode()


def hear(party: Party, data: bytes) -> None:
    party.machine.handle_message(data, at(0))
    party.drain(at(0))


def party_with_others() -> tuple[Party, str, list[str]]:
    """A party, the id of its message, and ids of others in its log that together cover it in a filter."""
    alice = Party("alice", sds=SDS, sync=quiet_sync())
    own = f"{alice.send('ours', at(0))}.0"
    alice.drain(at(0))
    others: list[str] = []
    while own not in filter_of(*others):
        number = len(others) + 1
        hear(alice, message("carol", number))
        others.append(f"{number:032x}.0")
    return alice, own, others


def test_an_accident_that_all_filters_share_acknowledges_nothing() -> None:
    alice, own, others = party_with_others()
    for number, sender in enumerate(("bob", "carol", "dave"), 100):
        hear(alice, message(sender, number, filter_of(*others)))
    assert [event.message_id for event in alice.of(ContentPossiblyAcknowledged)] == [own] * 3  # type: ignore[attr-defined]
    assert alice.of(ContentAcknowledged) == alice.of(SendAcknowledged) == []
    assert alice.machine.stats()["outgoing_unacknowledged"] == 1


@pytest.mark.parametrize("threshold", [1, 2])
def test_as_many_filters_as_configured_acknowledge_what_nothing_else_explains(threshold: int) -> None:
    alice = Party("alice", sds=replace(SDS, possible_acks_threshold=threshold), sync=quiet_sync())
    own = f"{alice.send('ours', at(0))}.0"
    alice.drain(at(0))
    for number, sender in enumerate(("bob", "carol"), 1):
        assert alice.of(SendAcknowledged) == []
        # Each filter holds what was there before it, as those of participants do.
        hear(alice, message(sender, number, filter_of(own)))
        if number == threshold:
            break
    assert len(alice.of(SendAcknowledged)) == threshold
    assert alice.machine.stats()["outgoing_unacknowledged"] == 0


def test_filters_of_one_participant_count_one_by_one() -> None:
    alice = Party("alice", sds=SDS, sync=quiet_sync())
    own = f"{alice.send('ours', at(0))}.0"
    alice.drain(at(0))
    hear(alice, message("bob", 1, filter_of(own)))
    assert alice.of(SendAcknowledged) == []
    hear(alice, message("bob", 2, filter_of(own)))
    assert len(alice.of(SendAcknowledged)) == 1
    assert alice.machine.stats()["outgoing_unacknowledged"] == 0


def test_a_filter_that_comes_again_counts_once() -> None:
    alice = Party("alice", sds=SDS, sync=quiet_sync())
    own = f"{alice.send('ours', at(0))}.0"
    alice.drain(at(0))
    sync = SdsMessage(
        sender_id="bob",
        message_id="sync-1",
        channel_id="room",
        lamport_timestamp=1_760_000_000_000,
        bloom_filter=filter_of(own).to_bytes(),
    ).encode()
    for _ in range(5):
        hear(alice, sync)
    assert [event.count for event in alice.of(ContentPossiblyAcknowledged)] == [1]  # type: ignore[attr-defined]
    assert alice.of(SendAcknowledged) == []


def test_counted_filters_survive_a_restart() -> None:
    alice = Party("alice", sds=SDS, sync=quiet_sync())
    own = f"{alice.send('ours', at(0))}.0"
    alice.drain(at(0))
    hear(alice, message("bob", 1, filter_of(own)))
    alice = alice.restarted(at(0))
    hear(alice, message("bob", 2, filter_of(own)))
    assert len(alice.of(SendAcknowledged)) == 1


def test_of_what_many_filters_hold_by_accident_no_more_is_told() -> None:
    alice, own, others = party_with_others()
    for number in range(100, 150):
        hear(alice, message("bob", number, filter_of(*others)))
    told = [event for event in alice.of(ContentPossiblyAcknowledged) if event.message_id == own]  # type: ignore[attr-defined]
    assert len(told) == SDS.possible_acks_threshold
    assert alice.of(SendAcknowledged) == []


def test_a_long_log_is_weighed_against_filters_once_a_second() -> None:
    alice = Party("alice", sds=replace(SDS, bloom_filter_capacity=10_000), sync=quiet_sync())
    for number in range(1, 2_101):
        hear(alice, message("carol", number))
    ids = [f"{alice.send(text, at(0))}.0" for text in ("first", "second")]
    alice.drain(at(0))

    def hear_filter(number: int, own: str, now_ms: int) -> None:
        bloom = BloomFilter(10_000, SDS.bloom_filter_error_rate)
        bloom.insert(own)
        alice.machine.handle_message(message("bob", number, bloom), at(now_ms))
        alice.drain(at(now_ms))

    for number, now_ms in ((3_001, 0), (3_002, 10)):
        hear_filter(number, ids[0], now_ms)
    assert len(alice.of(SendAcknowledged)) == 1
    for number, now_ms in ((3_003, 20), (3_004, 900)):
        hear_filter(number, ids[1], now_ms)
    assert len(alice.of(SendAcknowledged)) == 1
    hear_filter(3_005, ids[1], 1_100)
    assert len(alice.of(SendAcknowledged)) == 2


def test_a_filter_that_holds_it_puts_a_retransmission_off_by_a_period() -> None:
    alice = Party("alice", sds=replace(SDS, acknowledgement_timeout_ms=10_000), sync=quiet_sync())
    own = f"{alice.send('ours', at(0))}.0"
    for transmit in alice.drain(at(0)):
        alice.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    alice.machine.handle_message(message("bob", 1, filter_of(own)), at(5_000))
    again = []
    for now_ms in range(5_000, 25_000, 1_000):
        alice.machine.handle_timeout(at(now_ms))
        again += [now_ms for transmit in alice.drain(at(now_ms)) if transmit.kind is TransmitKind.RETRANSMISSION]
    assert again == [20_000]
