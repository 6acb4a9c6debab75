"""The machine of a channel by itself: what it stores, what it reads back, and who may call it when."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from channel_machines import channel_machine, delivered

from shardwire import ChannelConfig, SegmentationConfig
from shardwire._native import ChannelMachine
from shardwire.channel.receiving.reception import Arrival
from shardwire.config import SdsConfig
from shardwire.sds import Now
from shardwire.segmentation import segment

NOW = Now(1_000, 1_760_000_000_000)
CONFIG = ChannelConfig.logos()
SEGMENTATION = replace(CONFIG.segmentation, segment_size_bytes=1_024)
Disk = dict[tuple[str, bytes], bytes]


def machine(
    sender_id: str,
    records: Mapping[tuple[str, bytes], bytes] | None = None,
    *,
    sds: SdsConfig = CONFIG.sds,
    segmentation: SegmentationConfig = SEGMENTATION,
    rng: random.Random | None = None,
) -> ChannelMachine:
    config = replace(CONFIG, sds=sds, segmentation=segmentation)
    return channel_machine(sender_id, config, records, now=NOW, rng=rng)


def commit(made: ChannelMachine, disk: Disk) -> None:
    for name, value in made.poll_persist().to_dict().items():
        if value is None:
            disk.pop(name, None)
        else:
            disk[name] = value


@pytest.mark.parametrize("size", [100, 4_000])
def test_a_message_that_came_while_an_equal_one_was_cancelled_is_stored(size: int) -> None:
    """The send is cancelled in the cycle in which it began: its records say nothing of the message that came."""
    sds = SdsConfig(message_id="content-sha256")
    alice, bob = machine("alice", sds=sds), machine("bob", sds=sds)
    contents = segment(random.Random(3).randbytes(size), replace(SEGMENTATION, enable_reed_solomon=False))
    alice.send("of alice", contents, contents_needed=len(contents))
    bob.send("of bob", contents, contents_needed=len(contents))
    assert bob.cancel("of bob")
    while (transmit := alice.poll_transmit(NOW)) is not None:
        bob.handle_message(transmit.payload, NOW)
    disk: Disk = {}
    commit(bob, disk)
    assert len(delivered(bob)) == 1
    commit(bob, disk)
    held = [key.decode() for kind, key in disk if kind == "sds.log"]
    assert len(held) == len(contents)
    later = machine("bob", disk, sds=sds)
    assert all(later.holds(message_id) and later.needs_message(message_id) for message_id in held)


@pytest.mark.parametrize("change", ["wire", "limits"])
def test_a_stored_segment_that_is_refused_after_a_restart_is_as_if_it_had_not_come(change: str) -> None:
    alice, bob = machine("alice"), machine("bob")
    contents = segment(random.Random(3).randbytes(4_000), SEGMENTATION)
    alice.send("a" * 32, contents, contents_needed=4)
    transmit = alice.poll_transmit(NOW)
    assert transmit is not None
    assert bob.handle_message(transmit.payload, NOW)
    disk: Disk = {}
    commit(bob, disk)
    assert bob.receiving_stats()["sets_held"] == 1
    assert bob.holds(transmit.message_id)
    if change == "wire":
        other = replace(SEGMENTATION, wire_format="lip243")
    else:
        small = replace(SEGMENTATION.limits, buffered_bytes_max=500, buffered_bytes_per_sender_max=500)
        other = replace(SEGMENTATION, limits=small)
    later = machine("bob", disk, segmentation=other)
    assert later.receiving_stats()["sets_held"] == 0
    assert not later.holds(transmit.message_id)
    commit(later, disk)
    assert not [name for name in disk if name[0] in ("channel.segment", "sds.message")]


def test_segments_that_come_in_several_lives_are_stored_beside_each_other() -> None:
    alice, bob = machine("alice"), machine("bob")
    payload = random.Random(3).randbytes(4_000)
    alice.send("a" * 32, segment(payload, replace(SEGMENTATION, enable_reed_solomon=False)), contents_needed=4)
    disk: Disk = {}
    for count in range(1, 4):
        transmit = alice.poll_transmit(NOW)
        assert transmit is not None
        assert bob.handle_message(transmit.payload, NOW)
        commit(bob, disk)
        assert len([kind for kind, _ in disk if kind == "channel.segment"]) == count
        bob = machine("bob", disk)
        assert bob.receiving_stats()["stored"] == count
    transmit = alice.poll_transmit(NOW)
    assert transmit is not None
    assert bob.handle_message(transmit.payload, NOW)
    assert [delivery.payload for delivery in delivered(bob)] == [payload]
    commit(bob, disk)
    assert not [kind for kind, _ in disk if kind.startswith("channel.")]


def test_a_call_in_the_middle_of_another_one_raises_and_does_not_wait_for_itself() -> None:
    """As from a signal handler, which runs while a source of randomness does that is written in Python."""
    answers: list[Any] = []

    class Nosy(random.Random):
        def random(self) -> float:
            if made and not answers:
                try:
                    answers.append(made[0].stats())
                except RuntimeError as error:
                    answers.append(str(error))
            return super().random()

    made: list[ChannelMachine] = []
    rng = Nosy(1)
    alice, bob = machine("alice"), machine("bob", rng=rng)
    made.append(bob)
    # The delay of an acknowledgement is drawn.
    alice.send("a" * 32, segment(b"x", SEGMENTATION), contents_needed=1)
    transmit = alice.poll_transmit(NOW)
    assert transmit is not None
    bob.handle_message(transmit.payload, NOW)
    [answer] = answers
    assert "in the middle of a call on this thread" in answer
    assert bob.stats()["log"] == 1


def test_threads_that_share_a_machine_take_turns() -> None:
    bob = machine("bob")
    alice = machine("alice")
    contents = segment(random.Random(3).randbytes(200_000), replace(SEGMENTATION, segment_size_bytes=8_192))
    alice.send("a" * 32, contents, contents_needed=len(contents))
    wires = []
    while (transmit := alice.poll_transmit(NOW)) is not None:
        wires.append(transmit.payload)
    errors: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                bob.stats()
                bob.receiving_stats()
        except BaseException as error:
            errors.append(error)

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for wire in wires:
        bob.handle_message(wire, NOW)
    done.set()
    for watcher in watchers:
        watcher.join()
    assert errors == []
    assert bob.receiving_stats()["messages"] == 1


def test_messages_that_are_taken_in_together_are_as_if_they_came_one_by_one() -> None:
    alice, one_by_one, together = machine("alice"), machine("bob"), machine("bob")
    arrivals = []
    for number in range(40):
        contents = segment(b"%d" % number * 300, SEGMENTATION)
        alice.send(f"{number:032x}", contents, contents_needed=1)
        while (transmit := alice.poll_transmit(NOW)) is not None:
            arrivals.append(Arrival(transmit.payload, b"hash of %d" % len(arrivals), 0, None, False))
            alice.handle_transmitted(transmit.transmit_id, arrivals[-1].message_hash, NOW)
    # What is lost in between holds the later ones back.
    del arrivals[7]
    kept = [one_by_one.handle_message(arrival.data, NOW, arrival.message_hash) for arrival in arrivals]
    assert together.handle_messages(arrivals, NOW) == kept
    assert together.poll_events(NOW) == one_by_one.poll_events(NOW)
    assert together.poll_persist().to_dict() == one_by_one.poll_persist().to_dict()
    assert delivered(together) == delivered(one_by_one) != []


def test_what_is_wrong_with_one_of_several_messages_is_raised_before_any_is_taken_in() -> None:
    alice, bob = machine("alice"), machine("bob")
    alice.send(f"{1:032x}", segment(b"content", SEGMENTATION), contents_needed=1)
    transmit = alice.poll_transmit(NOW)
    assert transmit is not None
    sound = Arrival(transmit.payload, b"hash", 0, None, False)
    with pytest.raises(UnicodeEncodeError):
        bob.handle_messages([sound, replace(sound, authenticated_sender="\ud800")], NOW)
    assert bob.handle_messages([sound], NOW) == [True]
    assert [delivery.payload for delivery in delivered(bob)] == [b"content"]
