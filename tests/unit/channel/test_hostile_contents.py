"""What a hostile participant puts into contents: nobody hears that a message is here that is not."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import pytest
from channel_machines import channel_machine, delivered
from protobuf_fields import field, fields_of
from sds_exchange import at

from shardwire._native import (
    ChannelMachine,
    HistoryEntry,
    OwnSends,
    SdsMessage,
    SegmentSeen,
)
from shardwire.config import ChannelConfig, ReassemblyLimits, SdsConfig, SegmentationConfig, SegmentWireFormat
from shardwire.sds import ContentAcknowledged, Now
from shardwire.segmentation import segment

CONFIG = ChannelConfig.logos()
SEGMENTATION = replace(CONFIG.segmentation, segment_size_bytes=1_024, enable_reed_solomon=False)
SEND = "a" * 32
Disk = dict[tuple[str, bytes], bytes]
EPOCH_MS = 1_760_000_000_000
REAL = random.Random(3).randbytes(3_000)
# By then whoever has something said so.
SPOKEN_MS = CONFIG.sds.acknowledgement_timeout_ms // 2


def machine(
    sender_id: str,
    segmentation: SegmentationConfig = SEGMENTATION,
    records: Disk | None = None,
    sds: SdsConfig = CONFIG.sds,
) -> ChannelMachine:
    sync = replace(CONFIG.sync, sync_min_interval_ms=0)
    return channel_machine(sender_id, replace(CONFIG, sds=sds, sync=sync, segmentation=segmentation), records)


def send_real(alice: ChannelMachine) -> OwnSends:
    """Alice sends `REAL`, in three segments."""
    alice.submit(SEND, "request", "m", segment(REAL, SEGMENTATION), data_count=3)
    return alice.own_sends()


def held_by(sends: OwnSends) -> list[str]:
    """Who holds all of it, as far as its sender was told."""
    progress = sends.get(SEND)
    assert progress is not None
    return progress.delivered_to


def stored(made: ChannelMachine, disk: Disk | None = None) -> Disk:
    """What a disk has of it."""
    records = dict(disk or {})
    for name, value in made.poll_persist().to_dict().items():
        if value is None:
            records.pop(name, None)
        else:
            records[name] = value
    return records


def as_alice(message_id: str, content: bytes, lamport: int | None = EPOCH_MS) -> bytes:
    return SdsMessage(
        sender_id="alice", message_id=message_id, channel_id="room", lamport_timestamp=lamport, content=content
    ).encode()


def left(made: ChannelMachine, now: Now) -> list[bytes]:
    payloads = []
    while (transmit := made.poll_transmit(now)) is not None:
        payloads.append(transmit.payload)
        made.handle_transmitted(transmit.transmit_id, bytes(32), now)
    return payloads


def released(made: ChannelMachine, now: Now) -> list[bytes]:
    made.poll_events(now)
    return [delivery.payload for delivery in delivered(made)]


def speak(made: ChannelMachine, until_ms: int) -> list[bytes]:
    """What it says until then."""
    said: list[bytes] = []
    while (due_ms := made.poll_timeout()) is not None and due_ms <= until_ms:
        made.handle_timeout(at(due_ms))
        said += left(made, at(due_ms))
    return said


@pytest.mark.parametrize(
    ("heard", "ordinal"), [((1, 2), 0), ((), 1), ((2,), 1)], ids=["the last that lacks", "a later one", "one between"]
)
def test_a_small_message_in_the_place_of_a_part_says_nothing_of_the_other_parts(
    heard: tuple[int, ...], ordinal: int
) -> None:
    """Its sender would send no more of the large one."""
    alice, bob = machine("alice"), machine("bob")
    sends = send_real(alice)
    parts = left(alice, at(0))
    for place in heard:
        bob.handle_message(parts[place], at(0))
    bob.handle_message(as_alice(f"{SEND}.{ordinal}", segment(b"forged", SEGMENTATION)[0]), at(0))
    assert released(bob, at(0)) == [b"forged"]
    lacks = set(range(3)) - set(heard)
    assert not any(bob.holds(f"{SEND}.{place}") for place in lacks)
    said = speak(bob, SPOKEN_MS)
    assert bool(said) == bool(heard)
    for data in said:
        alice.handle_message(data, at(SPOKEN_MS), observed=True)
    events = alice.poll_events(at(SPOKEN_MS))
    assert held_by(sends) == []
    assert {event.ordinal for event in events if isinstance(event, ContentAcknowledged)} <= set(heard)
    for place in lacks:
        bob.handle_message(parts[place], at(SPOKEN_MS))
    assert released(bob, at(SPOKEN_MS)) == [REAL]


def test_a_segment_for_which_there_was_no_room_is_not_acknowledged_and_may_come_again() -> None:
    limits = ReassemblyLimits(candidates_per_slot_max=1)
    alice, bob = machine("alice"), machine("bob", replace(SEGMENTATION, limits=limits))
    alice.send(SEND, segment(REAL, SEGMENTATION), contents_needed=3)
    parts = left(alice, at(0))
    content = segment(REAL, SEGMENTATION)[1]
    false = content[:300] + bytes(100) + content[400:]
    assert bob.handle_message(as_alice(f"{SEND}.7", false), at(0))
    assert [bob.handle_message(data, at(0)) for data in parts[:2]] == [True, False]
    assert [bob.holds(f"{SEND}.{place}") for place in range(2)] == [True, False]
    for data in speak(bob, SPOKEN_MS):
        alice.handle_message(data, at(SPOKEN_MS), observed=True)
    events = alice.poll_events(at(SPOKEN_MS))
    assert [event.ordinal for event in events if isinstance(event, ContentAcknowledged)] == [0]
    # It is looked at again, and is no repetition.
    assert not bob.handle_message(parts[1], at(SPOKEN_MS))
    assert bob.receiving_stats()["QuotaExceeded"] == 2


def test_what_follows_a_segment_for_which_there_was_no_room_waits_for_it() -> None:
    limits = ReassemblyLimits(
        buffered_bytes_max=10_000, buffered_bytes_per_sender_max=10_000, unauthenticated_share=0.05
    )
    alice, bob = machine("alice"), machine("bob", replace(SEGMENTATION, limits=limits))
    alice.send(SEND, segment(REAL, SEGMENTATION), contents_needed=3)
    assert not bob.handle_message(left(alice, at(0))[0], at(0))
    after = SdsMessage(
        sender_id="carol",
        message_id=f"{'c' * 32}.0",
        channel_id="room",
        lamport_timestamp=EPOCH_MS,
        causal_history=[HistoryEntry(f"{SEND}.0", None, "alice")],
        content=segment(b"after", SEGMENTATION)[0],
    )
    assert bob.handle_message(after.encode(), at(0))
    assert released(bob, at(0)) == []
    assert [entry.message_id for entry in bob.missing()] == [f"{SEND}.0"]


@pytest.mark.parametrize(("proven", "is_kept"), [("alice", True), ("mallory", False), (None, False)])
def test_only_who_is_proven_to_be_the_sender_has_the_room_of_who_is_proven(proven: str | None, is_kept: bool) -> None:
    limits = ReassemblyLimits(
        buffered_bytes_max=10_000, buffered_bytes_per_sender_max=10_000, unauthenticated_share=0.05
    )
    chosen = replace(SEGMENTATION, limits=limits)
    alice, bob = machine("alice"), machine("bob", chosen)
    alice.send(SEND, segment(REAL, SEGMENTATION), contents_needed=3)
    data = left(alice, at(0))[0]
    assert bob.handle_message(data, at(0), authenticated_sender=proven) == is_kept
    assert bob.receiving_stats()["sets_held"] == is_kept
    later = machine("bob", chosen, stored(bob))
    assert later.receiving_stats()["sets_held"] == is_kept
    assert later.holds(f"{SEND}.0") == is_kept


def test_enough_segments_that_make_no_message_are_not_acknowledged_as_one() -> None:
    """A false one took the id of one of them first."""
    alice, bob = machine("alice"), machine("bob")
    sends = send_real(alice)
    parts = left(alice, at(0))
    content = segment(REAL, SEGMENTATION)[0]
    bob.handle_message(as_alice(f"{SEND}.0", content[:300] + bytes(100) + content[400:]), at(0))
    for data in parts[1:]:
        bob.handle_message(data, at(0))
    assert released(bob, at(0)) == []
    for data in speak(bob, SPOKEN_MS):
        alice.handle_message(data, at(SPOKEN_MS))
    assert held_by(sends) == []
    bob.handle_message(parts[0], at(SPOKEN_MS))
    assert released(bob, at(SPOKEN_MS)) == [REAL]
    for data in speak(bob, 4 * SPOKEN_MS):
        alice.handle_message(data, at(4 * SPOKEN_MS))
    assert held_by(sends) == ["bob"]


@pytest.mark.parametrize("wire_format", ["raw", "draft"])
def test_whoever_observes_segments_sees_the_place_of_each(wire_format: SegmentWireFormat) -> None:
    """Parity of `draft` says of its place only what its id does."""
    chosen = replace(SEGMENTATION, wire_format=wire_format, enable_reed_solomon=True, parity_rate=1.0)
    alice, bob = machine("alice"), machine("bob", chosen)
    alice.send(SEND, segment(REAL, chosen), contents_needed=3)
    parts = left(alice, at(0))
    for place in (4, 0):
        bob.handle_message(parts[place], at(0), observed=True)
    seen = [event for event in bob.poll_events(at(0)) if isinstance(event, SegmentSeen)]
    assert [event.ordinal for event in seen] == [4, 0]


def test_a_segment_of_a_message_that_could_never_be_held_is_not_acknowledged() -> None:
    limits = ReassemblyLimits(buffered_bytes_max=2_000, buffered_bytes_per_sender_max=2_000)
    alice, bob = machine("alice"), machine("bob", replace(SEGMENTATION, limits=limits))
    alice.send(SEND, segment(REAL, SEGMENTATION), contents_needed=3)
    assert bob.handle_message(left(alice, at(0))[0], at(0))
    assert bob.receiving_stats()["Oversized"] == 1
    assert not bob.holds(f"{SEND}.0")
    assert bob.stats()["incoming_contents"] == 0


def test_a_false_message_in_one_segment_is_not_held() -> None:
    """Its buffer would be full of such ones, and each acknowledged."""
    bob = machine("bob")
    whole = segment(b"whole", SEGMENTATION)[0]
    assert bob.handle_message(as_alice(f"{SEND}.0", whole.replace(b"whole", b"false")), at(0))
    assert released(bob, at(0)) == []
    assert not bob.holds(f"{SEND}.0")
    assert bob.stats()["incoming_contents"] == 0
    assert bob.handle_message(as_alice(f"{'b' * 32}.0", b"no segment"), at(0))

    def hear_what_follows(message_id: str) -> None:
        after = SdsMessage(
            sender_id="carol",
            message_id=f"{message_id[::-1]}.0",
            channel_id="room",
            lamport_timestamp=EPOCH_MS,
            causal_history=[HistoryEntry(message_id, None, "alice")],
            content=segment(b"after", SEGMENTATION)[0],
        )
        assert bob.handle_message(after.encode(), at(0))

    # Nothing waits for what is no segment. This one may have been altered on its way: another copy is awaited.
    hear_what_follows(f"{'b' * 32}.0")
    assert released(bob, at(0)) == [b"after"]
    hear_what_follows(f"{SEND}.0")
    assert released(bob, at(0)) == []
    assert bob.handle_message(as_alice(f"{SEND}.0", whole), at(0))
    assert released(bob, at(0)) == [b"whole", b"after"]


def test_parity_of_a_message_that_an_earlier_life_delivered_makes_it_no_second_time() -> None:
    chosen = replace(SEGMENTATION, enable_reed_solomon=True, parity_rate=1.0)
    alice, bob = machine("alice"), machine("bob", chosen)
    alice.send(SEND, segment(REAL, chosen), contents_needed=3)
    parts = left(alice, at(0))
    assert len(parts) == 6
    for data in parts[:3]:
        bob.handle_message(data, at(0))
    assert released(bob, at(0)) == [REAL]
    later = machine("bob", chosen, stored(bob))
    for data in parts[3:]:
        later.handle_message(data, at(1))
    assert released(later, at(1)) == []
    assert later.receiving_stats()["sets_held"] == 0
    assert later.stats()["incoming_contents"] == 0


def test_what_is_stored_of_delivered_messages_does_not_grow_with_their_number() -> None:
    chosen = replace(SEGMENTATION, limits=ReassemblyLimits(completed_remembered_max=2))
    bob = machine("bob", chosen, sds=replace(CONFIG.sds, log_messages_max=4))
    disk: Disk = {}
    for number in range(5):
        send_id = f"{number:032x}"
        bob.handle_message(as_alice(f"{send_id}.0", segment(b"%d" % number, chosen)[0]), at(number))
        assert released(bob, at(number)) == [b"%d" % number]
        disk = stored(bob, disk)
        assert len([kind for kind, _ in disk if kind == "segmentation.completed"]) == min(number + 1, 4)


def test_a_small_content_does_not_keep_the_large_message_around_it() -> None:
    """Its sender is charged with the content alone."""
    bob = machine("bob", sds=replace(CONFIG.sds, enable_repair=False))
    large = replace(SEGMENTATION, segment_size_bytes=65_536)
    content = segment(bytes(200_000), large)[0]
    kept = []
    for number, filler in enumerate((b"", bytes(200_000))):
        data = SdsMessage(
            sender_id="alice",
            message_id=f"{number:032x}.0",
            channel_id="room",
            lamport_timestamp=EPOCH_MS,
            content=content,
            bloom_filter=filler,
        ).encode()
        before = sys.getrefcount(data)
        assert bob.handle_message(data, at(0))
        bob.drop_changes()
        kept.append(sys.getrefcount(data) - before)
    assert kept[1] == 0 < kept[0]


@pytest.mark.parametrize("wire_format", ["raw", "draft"])
def test_an_ephemeral_message_is_one_whole_segment_and_has_its_hash(wire_format: SegmentWireFormat) -> None:
    chosen = replace(SEGMENTATION, wire_format=wire_format)
    bob = machine("bob", chosen)
    whole = segment(b"whole", SEGMENTATION)[0]
    hostile = [segment(REAL, chosen)[0], segment(REAL, chosen)[2]]
    if wire_format == "raw":
        of_two = b"".join(field(number, 2 if number == 3 else value) for number, value in fields_of(whole))
        hostile += [whole.replace(b"whole", b"false"), of_two, b"no segment"]
    else:
        whole = b"whole"
    for number, content in enumerate([*hostile, whole]):
        bob.handle_message(as_alice(f"{number:032x}.0", content, lamport=None), at(0))
    assert released(bob, at(0)) == [b"whole"]
